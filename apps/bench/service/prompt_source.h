// PromptSource: the batches of an engine that stores the prompts of a PromptSequence, for
// benchmarks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

#include "apps/bench/service/freshness_prompts.h"
#include "kvcast/core/event.h"

namespace kvcast::tools {

// Number of blocks in a batch that fills a source.
inline constexpr uint64_t kFillBlocks = 512;

class PromptSource {
 public:
  // `number`: of the source; see PromptSequence. `held`: number of blocks that a full source holds.
  PromptSource(int number, uint64_t held)
      : number_(number), held_(held), prompts_(number), tokens_(static_cast<uint32_t>(number)) {}

  bool full() const { return stored_ - removed_ >= held_; }
  // Numbers of blocks that the source has stored and removed since the start. The source holds the
  // blocks with numbers from `removed` to `stored` - 1.
  uint64_t stored() const { return stored_; }
  uint64_t removed() const { return removed_; }
  // Stores `blocks` blocks. A full source also removes its `blocks` oldest blocks. The time stamp
  // is SteadyNow().
  EventBatch Next(uint64_t blocks);

 private:
  // Stores at most `most` blocks of one prompt. Returns their number.
  uint64_t Store(uint64_t most, EventBatch& batch);
  void Remove(uint64_t blocks, EventBatch& batch);

  const int number_;
  const uint64_t held_;
  PromptSequence prompts_;
  std::minstd_rand tokens_;
  PromptSpan prompt_;
  uint64_t stored_ = 0;
  uint64_t removed_ = 0;
};

}  // namespace kvcast::tools
