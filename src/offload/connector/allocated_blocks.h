// AllocatedBlocks: the GPU blocks that the engine gave to requests, by step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>

#include "kvcast/core/ids.h"

namespace kvcast::offload {

class AllocatedBlocks {
 public:
  // Number of the step that is being scheduled.
  uint64_t step() const { return step_; }

  // Records that the block was allocated for the current step. The null block is ignored.
  void Note(BlockId block) {
    if (block.value == 0) return;
    in_step_.insert(block);
    last_step_[block] = step_;
  }
  void NextStep() {
    in_step_.clear();
    ++step_;
  }

  bool IsInStep(BlockId block) const { return in_step_.contains(block); }
  const absl::flat_hash_set<BlockId>& in_step() const { return in_step_; }
  // The latest step that gave the block to a request. REQUIRES: Note(block) was called.
  uint64_t LastStepOf(BlockId block) const { return last_step_.at(block); }

 private:
  uint64_t step_ = 1;
  absl::flat_hash_set<BlockId> in_step_;
  absl::flat_hash_map<BlockId, uint64_t> last_step_;
};

}  // namespace kvcast::offload
