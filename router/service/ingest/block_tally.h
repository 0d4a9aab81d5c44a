// BlockTally: how many blocks of each group lie in each tier, counted from a worker's events.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::router {

struct GroupTally {
  struct InTier {
    int64_t held = 0;  // copies announced and not removed; never negative
    uint64_t stored = 0;
    uint64_t removed = 0;
  };
  std::array<InTier, kTiers> tiers{};
};

// Of one worker. Thread-compatible. What joined late is missing in it: it is what was announced,
// and for people to look at; what can be reused is the index's to say.
class BlockTally {
 public:
  // `left_out`: positions of events that were not applied, ascending.
  void Apply(const EventBatch& batch, std::span<const size_t> left_out);
  // One more place that is held.
  void Hold(Tier tier, uint8_t group, uint32_t copies);
  // What is held is what `other` says; what was counted of the past stays.
  void Replace(const BlockTally& other);
  // What is held may be gone.
  void Clear();
  // By group_idx.
  const std::vector<GroupTally>& groups() const { return groups_; }

 private:
  GroupTally::InTier* At(const std::optional<int64_t>& group, Tier tier);
  void Clear(Tier tier);

  std::vector<GroupTally> groups_;
};

}  // namespace kvcast::router
