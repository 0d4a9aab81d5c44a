// SPDX-License-Identifier: Apache-2.0
#include "router/parked_spans.h"

#include <utility>

namespace kvcast::router {

void ParkedSpans::Park(StoreSpan span, std::span<const RecordId> awaited) {
  const ParkId id = next_++;
  tokens_ += TokensOf(span);
  for (const RecordId record : awaited) waiting_[record].insert(id);
  spans_.emplace(id, Parked{std::move(span), {awaited.begin(), awaited.end()}});
}

std::vector<ParkId> ParkedSpans::WaitingFor(RecordId record) const {
  const auto it = waiting_.find(record);
  if (it == waiting_.end()) return {};
  return {it->second.begin(), it->second.end()};
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
  tokens_ -= TokensOf(span);
  spans_.erase(it);
  return span;
}

}  // namespace kvcast::router
