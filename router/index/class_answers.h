// ClassAnswers: the answers of one query, one for each class of workers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "router/index/held_blocks.h"
#include "router/index/holding_classes.h"
#include "router/rules/match_plan.h"

namespace kvcast::router {

// Keeps its memory from query to query. Thread-compatible.
class ClassAnswers {
 public:
  // REQUIRES: the query has added all blocks that it read to `classes`. `classes` and `contents`
  // must be valid until the next Begin.
  void Begin(const HoldingClasses& classes, const QueryShape& shape,
             std::span<const ContentKey> contents);

  // True: the workers of the class hold no block of the prompt, and their answer is therefore 0
  // tokens.
  bool HoldNothing(ClassId id) const {
    const HoldingClasses::Node& node = classes_->node(id);
    if (node.parent != kNoClass) return false;
    const HoldingClasses::Root& root = classes_->root(node.number);
    return root.ambiguous == nullptr && root.rules->nothing_without_blocks;
  }
  // Returns the answer for the workers of the class. WorkerMatch::worker is not set.
  // WorkerMatch::unnamed_gpu is 1 for any number of blocks above 0. The result is valid until the
  // next call of Of or Begin. nullptr: the hash block size of the workers differs from the
  // hash block size of the query.
  const WorkerMatch* Of(ClassId id) {
    if (id >= answer_of_.size() || answer_of_[id] == 0) Compute(id);
    return answer_of_[id] == kOtherHashBlockSize ? nullptr : &answers_[answer_of_[id] - 1];
  }
  // Returns a plan in which the blocks of the class are marked.
  MatchPlan PlanOf(ClassId id);

 private:
  // False: the hash block size of the workers differs from the hash block size of the query.
  bool HasHashBlockSize(const WorkerRules& rules) const {
    return rules.hash_block_size == shape_.hash_block_size || rules.hash_block_size == 0;
  }
  // Returns the answer for workers that hold no block of the prompt. Does not set
  // WorkerMatch::ambiguous. REQUIRES: WorkerRules::nothing_without_blocks.
  WorkerMatch Miss(const HoldingClasses::Root& root) const;
  void Compute(ClassId id);
  MatchPlan Plan() const;
  // The methods below are for the class in held_.
  WorkerMatch WholeAnswer() const;  // does not set WorkerMatch::worker
  // The answer without the properties that show whether it is exact.
  WorkerMatch Answer() const;
  bool LeadingRun(WorkerMatch& match) const;
  uint32_t Unknown(const WorkerMatch& match) const;
  uint32_t UnknownOfLoads(const WorkerMatch& match) const;

  const HoldingClasses* classes_ = nullptr;
  QueryShape shape_;
  std::span<const ContentKey> contents_;
  HeldBlocks held_;
  std::vector<WorkerMatch> answers_;
  // By class: 1 + index into answers_, or kOtherHashBlockSize; 0: not computed.
  static constexpr uint32_t kOtherHashBlockSize = ~uint32_t{0};
  std::vector<uint32_t> answer_of_;
};

}  // namespace kvcast::router
