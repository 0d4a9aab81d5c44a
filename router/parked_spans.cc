// SPDX-License-Identifier: Apache-2.0
#include "router/parked_spans.h"

#include <xxhash.h>

#include <utility>

#include "router/seeded_hash.h"

namespace kvcast::router {

uint64_t ParkedSpans::Fingerprint(const StoreSpan& span) {
  const uint64_t hashes = XXH3_64bits_withSeed(
      span.hashes.data(), span.hashes.size() * sizeof(RecordId), ProcessSeed() ^ span.parent);
  const std::vector<TokenId>& tokens = *span.event.token_ids;
  return XXH3_64bits_withSeed(tokens.data(), tokens.size() * sizeof(TokenId), hashes);
}

bool ParkedSpans::Has(const StoreSpan& span) const {
  const auto it = by_fingerprint_.find(Fingerprint(span));
  if (it == by_fingerprint_.end()) return false;
  const StoreSpan& other = spans_.at(it->second).span;
  return span.hashes == other.hashes && span.parent == other.parent && span.event == other.event;
}

void ParkedSpans::Park(StoreSpan span, std::span<const RecordId> awaited) {
  const ParkId id = next_++;
  by_fingerprint_.try_emplace(Fingerprint(span), id);
  tokens_ += TokensOf(span);
  for (const RecordId record : awaited) waiting_[record].insert(id);
  spans_.emplace(id, Parked{std::move(span), {awaited.begin(), awaited.end()}});
}

void ParkedSpans::AddWaitingFor(RecordId record, std::set<ParkId>& waiting) const {
  const auto it = waiting_.find(record);
  if (it != waiting_.end()) waiting.insert(it->second.begin(), it->second.end());
}

StoreSpan ParkedSpans::Take(ParkId id) {
  const auto it = spans_.find(id);
  for (const RecordId record : it->second.awaited) {
    const auto waiting = waiting_.find(record);
    if (waiting == waiting_.end()) continue;
    waiting->second.erase(id);
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  StoreSpan span = std::move(it->second.span);
  const auto first = by_fingerprint_.find(Fingerprint(span));
  if (first != by_fingerprint_.end() && first->second == id) by_fingerprint_.erase(first);
  tokens_ -= TokensOf(span);
  spans_.erase(it);
  return span;
}

}  // namespace kvcast::router
