// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/block_counts.h"

#include <algorithm>
#include <variant>

#include "kvcast/core/tier.h"

namespace kvcast::router {

GroupTally::InTier* BlockCounts::At(const std::optional<int64_t>& group, Tier tier) {
  const int64_t index = group.value_or(0);
  if (index < 0 || index >= kMaxGroups) return nullptr;
  if (std::ssize(groups_) <= index) groups_.resize(static_cast<size_t>(index) + 1);
  return &groups_[static_cast<size_t>(index)].tiers[static_cast<size_t>(tier)];
}

void BlockCounts::Apply(const EventBatch& batch, std::span<const size_t> left_out) {
  for (size_t i = 0; i < batch.events.size(); ++i) {
    if (!left_out.empty() && left_out.front() == i) {
      left_out = left_out.subspan(1);
      continue;
    }
    const Event& event = batch.events[i];
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      GroupTally::InTier* const tally = At(stored->group_idx, TierOf(stored->medium));
      if (tally == nullptr) continue;
      tally->stored += stored->block_hashes.size();
      tally->held += std::ssize(stored->block_hashes);
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      GroupTally::InTier* const tally = At(removed->group_idx, TierOf(removed->medium));
      if (tally == nullptr) continue;
      tally->removed += removed->block_hashes.size();
      tally->held = std::max<int64_t>(tally->held - std::ssize(removed->block_hashes), 0);
    } else {
      Clear(TierOf(std::get<AllBlocksCleared>(event).medium));
    }
  }
}

void BlockCounts::Hold(Tier tier, uint8_t group, uint32_t copies) {
  GroupTally::InTier* const tally = At(group, tier);
  if (tally == nullptr) return;
  tally->stored += copies;
  tally->held += copies;
}

void BlockCounts::Replace(const BlockCounts& other) {
  Clear();
  groups_.resize(std::max(groups_.size(), other.groups_.size()));
  for (size_t i = 0; i < other.groups_.size(); ++i) {
    for (size_t tier = 0; tier < kTiers; ++tier) {
      GroupTally::InTier& tally = groups_[i].tiers[tier];
      tally.held = other.groups_[i].tiers[tier].held;
      tally.stored = std::max(tally.stored, other.groups_[i].tiers[tier].stored);
    }
  }
}

void BlockCounts::Clear(Tier tier) {
  for (GroupTally& group : groups_) group.tiers[static_cast<size_t>(tier)].held = 0;
}

void BlockCounts::Clear() {
  for (GroupTally& group : groups_) {
    for (GroupTally::InTier& tier : group.tiers) tier.held = 0;
  }
}

}  // namespace kvcast::router
