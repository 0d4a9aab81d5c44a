// BlockCounts: counts the blocks of each group in each tier, from a worker's events.
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

// The counts of one worker. Thread-compatible. The counts cover the blocks that events announced or
// that a snapshot contained. Without a snapshot, blocks that were stored before the router joined
// the stream are missing. The counts do not show which blocks can be reused.
class BlockCounts {
 public:
  // `left_out`: positions of events that were not applied, ascending.
  void Apply(const EventBatch& batch, std::span<const size_t> left_out);
  // Adds the copies of one block that a snapshot contains.
  void Hold(Tier tier, uint8_t group, uint32_t copies);
  // Takes the held blocks from `other`. The totals of removed blocks do not change. A total of
  // stored blocks that is lower than the total of `other` rises to the total of `other`.
  void Replace(const BlockCounts& other);
  // Sets the held blocks to 0, because they may be gone.
  void Clear();
  // By group_idx.
  const std::vector<GroupTally>& groups() const { return groups_; }

 private:
  GroupTally::InTier* At(const std::optional<int64_t>& group, Tier tier);
  void Clear(Tier tier);

  std::vector<GroupTally> groups_;
};

}  // namespace kvcast::router
