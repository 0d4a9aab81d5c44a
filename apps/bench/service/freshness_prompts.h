// The prompts of the freshness benchmark. Each source stores its own prompts in a fixed order. The
// publisher process and the router process both compute this order. The router process thus
// needs no communication to determine the prompts that a source holds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

namespace kvcast::tools {

inline constexpr int64_t kFreshnessBlockSize = 16;
inline constexpr uint64_t kLongestPromptBlocks = 14'000;
// Number of blocks that a full source holds. A full source removes as many of its oldest blocks as
// it stores.
inline constexpr uint64_t kHeldBlocks = 16'384;

// The blocks of a source are numbered from 0 in the order in which they are stored.
struct PromptSpan {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The prompts of a source, in order. Their lengths are log-uniform, from 1 to kLongestPromptBlocks
// blocks: 1 to 10 blocks are as frequent as 1,000 to 10,000 blocks.
class PromptSequence {
 public:
  explicit PromptSequence(int source) : random_(static_cast<uint64_t>(source)) {}
  PromptSpan Next();

 private:
  std::mt19937_64 random_;
  uint64_t next_ = 0;
};

// The event hash of a block.
uint64_t HashOfBlock(int source, uint64_t block);

}  // namespace kvcast::tools
