// MatchPlan: one worker's bitmaps for one query, from hash hits to the reusable prefix.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcast/prefix_index.h"
#include "kvcast/reuse.h"
#include "router/group_catalogue.h"

namespace kvcast::router {

// The part of a query that is the same for all workers.
struct QueryShape {
  int64_t unit = 0;   // tokens per hash
  int64_t units = 0;  // leading hashes that can serve a hit: those within prompt tokens - 1
  MatchPolicy policy = MatchPolicy::kExact;
};

// Thread-compatible value.
class MatchPlan {
 public:
  // REQUIRES: catalogue.unit() is shape.unit or 0.
  MatchPlan(WorkerId worker, const GroupCatalogue& catalogue, const QueryShape& shape);

  // The worker holds hash `position` of the chain in `group`. The position alone tells a block's
  // end from a partial entry, so that both may share one index.
  void Mark(uint8_t group, int64_t position);

  void set_certain(bool certain) { certain_ = certain; }

  WorkerMatch Evaluate() const;

 private:
  void AddGroup(GroupSpec spec);
  int64_t Promise(const Reuse& reuse) const;

  QueryShape shape_;
  WorkerId worker_;
  bool certain_ = true;
  int64_t alignment_;
  std::vector<int> part_of_group_;     // index into parts_ by group_idx; -1: takes no part
  std::vector<GroupResidency> parts_;  // the groups that take part
};

}  // namespace kvcast::router
