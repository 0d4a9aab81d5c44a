// MatchPlan: the bitmaps of one worker for one query. It computes the reusable prefix from these
// bitmaps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "kvcast/spec/reuse.h"
#include "router/rules/offload_reuse.h"
#include "router/rules/worker_rules.h"

namespace kvcast::router {

// The part of a query that is equal for all workers.
struct QueryShape {
  int64_t hash_block_size = 0;  // tokens per block hash
  int64_t units = 0;  // leading hashes that can serve a hit: at most prompt_tokens - 1 tokens
  // All hashes of the prompt: units + 1 if the prompt ends with a hash unit, otherwise units.
  int64_t prompt_units = 0;
  int64_t prompt_tokens = 0;  // at least 1
  MatchPolicy policy = MatchPolicy::kExact;
};

// Value type. Thread-compatible.
class MatchPlan {
 public:
  // Borrows `worker`. REQUIRES: worker.hash_block_size is shape.hash_block_size or 0.
  MatchPlan(const WorkerRules& worker, const QueryShape& shape);

  // If bit i of `positions` is set, marks hash i of the chain as held in `group`, on `tier`. The
  // position alone decides if a hash is the end of a block or a partial entry, so one bitmap may
  // contain both. REQUIRES: no bit at or above shape.prompt_units.
  void Mark(uint8_t group, Tier tier, std::span<const uint64_t> positions);

  // The caller must set WorkerMatch::worker, certain and unknown. In unknown_with_cpu this method
  // sets only the bits of the properties that the blocks leave undecided.
  WorkerMatch Evaluate() const;

  // The groups that take part, with their blocks on the GPU.
  const std::vector<GroupResidency>& parts() const { return parts_; }
  // The group_idx of a part.
  size_t group_of(size_t part) const {
    const auto group =
        std::find(part_of_group_.begin(), part_of_group_.end(), static_cast<int>(part));
    return static_cast<size_t>(group - part_of_group_.begin());
  }

 private:
  void AddGroup(GroupSpec spec);
  void MarkOne(size_t part, Tier tier, int64_t position);
  void MarkOffloaded(size_t part, Tier tier, int64_t position);
  int64_t PredictedTokens(const Reuse& reuse) const;
  void Replay(WorkerMatch& match) const;
  void Judge(const Reuse& reuse, WorkerMatch& match) const;
  // `held`: the blocks on lower tiers, by part. Empty: none.
  OffloadReuse WithOffload(std::span<const GroupResidency> held, int64_t local_tokens) const;

  QueryShape shape_;
  const WorkerRules* worker_;
  // Number of leading hashes that a lookup may read; at least shape_.units. See EagleLimit.
  int64_t eagle_units_;
  std::vector<int> part_of_group_;     // index into parts_ by group_idx; -1: takes no part
  std::vector<GroupResidency> parts_;  // the groups that take part
  bool full_kinds_only_ = true;
  // Blocks on lower tiers, by part: blocks on the CPU, and blocks on any lower tier. Empty: none.
  std::vector<GroupResidency> on_cpu_;
  std::vector<GroupResidency> on_any_lower_;
};

}  // namespace kvcast::router
