// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/freshness_prompts.h"

#include <cmath>

namespace kvcast::tools {

PromptSpan PromptSequence::Next() {
  std::uniform_real_distribution<double> exponent(0, std::log(kLongestPromptBlocks));
  const PromptSpan span{next_, next_ + static_cast<uint64_t>(std::exp(exponent(random_)))};
  next_ = span.end;
  return span;
}

// Applies the finalizer of MurmurHash3 to both numbers. Different blocks have different hashes.
uint64_t HashOfBlock(int source, uint64_t block) {
  uint64_t hash = static_cast<uint64_t>(source) << 48 | (block + 1);
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

}  // namespace kvcast::tools
