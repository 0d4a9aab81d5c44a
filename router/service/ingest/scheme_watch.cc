// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/scheme_watch.h"

#include <algorithm>
#include <random>
#include <variant>

#include "kvcast/core/tier.h"
#include "kvcast/hash/chain_challenge.h"
#include "kvcast/wire/wire.h"

namespace kvcast::router {
namespace {

// Limits of an answer.
constexpr size_t kMaxStores = 16;
constexpr size_t kMaxTokens = 1 << 16;  // of one store

bool IsOfChallenge(const Event& event, uint64_t nonce) {
  const auto* const stored = std::get_if<BlockStored>(&event);
  if (stored == nullptr || TierOf(stored->medium) != Tier::kGpu) return false;
  if (stored->parent_block_hash || stored->block_hashes.empty() || !stored->token_ids) return false;
  const size_t count = stored->token_ids->size();
  return count > 0 && count <= kMaxTokens && stored->tokens_per_position == 1 &&
         *stored->token_ids == ChallengeTokens(nonce, count);
}

}  // namespace

void SchemeWatch::Restart() {
  detector_.Restart();
  before_ = counters().kinds;
  nonce_.reset();
  answered_ = false;
}

bool SchemeWatch::WantsChallenge() const {
  if (!answered_) return true;
  const bool tokenless = counters().skipped[static_cast<size_t>(SchemeSkip::kNoTokens)] > 0;
  const auto is_unproven = [&](KeyKind kind) { return !IsProven(verdict().of(kind).proof); };
  return tokenless && (is_unproven(KeyKind::kSalt) || is_unproven(KeyKind::kImages));
}

bool SchemeWatch::is_contradicted() const {
  for (size_t i = 0; i < kKeyKinds; ++i) {
    const auto kind = static_cast<KeyKind>(i);
    const uint64_t earlier = before_[i].contradictions;
    if (kind == KeyKind::kLora || counters().kinds[i].contradictions == earlier) continue;
    if (verdict().of(kind).proof == KeyProof::kRefuted) return true;
  }
  return false;
}

uint64_t SchemeWatch::BeginChallenge() {
  std::random_device random;
  nonce_ = uint64_t{random()} << 32 | random();
  ++challenges_.sent;
  return *nonce_;
}

std::optional<EventBatch> SchemeWatch::TakeAnswer(std::span<const uint8_t> payload) {
  const auto nonce = std::exchange(nonce_, std::nullopt);
  EventBatch batch;
  DecodeCounts counts;
  const bool valid =
      nonce && DecodeBatch(payload, WireLimits(), batch, counts).ok() &&
      counts.rejected_total() == 0 && !batch.events.empty() && batch.events.size() <= kMaxStores &&
      std::ranges::all_of(batch.events,
                          [&](const Event& event) { return IsOfChallenge(event, *nonce); });
  if (!valid) {
    ++challenges_.rejected;
    return std::nullopt;
  }
  ++challenges_.answered;
  answered_ = true;
  detector_.Observe(batch);
  return batch;
}

}  // namespace kvcast::router
