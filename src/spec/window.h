// The arithmetic of sliding windows that lookups, retention and eviction share. The next token, at
// position p, attends to itself and to the sliding_window - 1 tokens before it.
//
// All functions are pure and thread-safe. REQUIRES: IsWindowKind(spec.kind), sliding_window > 0 and
// block_size > 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kvcast/spec/cache_spec.h"

namespace kvcast::internal {

// A boundary lies at the end of a block. The function returns the number of blocks before the
// boundary that hold tokens which the next token reads. 0 for a window of one token, because the
// next token then reads only itself.
inline int64_t WindowBlocks(const GroupSpec& spec) {
  return CeilDiv(spec.sliding_window - 1, spec.block_size);
}

// The number of blocks before a boundary that a lookup requires (vLLM's SlidingWindowManager). The
// lookup requires one block even if the window reads no block. With EAGLE, that block is the block
// after the boundary.
inline int64_t RequiredWindowBlocks(const GroupSpec& spec) {
  return std::max<int64_t>(spec.eagle ? 0 : 1, WindowBlocks(spec));
}

// The number of computed tokens that an engine keeps for the next token: the tokens that the next
// token reads, and extra_retained_tokens more.
inline int64_t RetainedWindowTokens(const GroupSpec& spec) {
  return spec.sliding_window - 1 + spec.extra_retained_tokens;
}

}  // namespace kvcast::internal
