// The arithmetic of sliding windows that lookups, retention and eviction share. The next token at
// position p attends to the `sliding_window` tokens that end with p itself: to sliding_window - 1
// tokens before it.
//
// All functions are pure and thread-safe. REQUIRES: IsWindowKind(spec.kind), sliding_window > 0 and
// block_size > 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kvcast/spec/cache_spec.h"

namespace kvcast::internal {

// The number of blocks before a boundary at a block's end that hold the tokens which the next token
// reads. 0: a window of one token reads no earlier token.
inline int64_t WindowBlocks(const GroupSpec& spec) {
  return CeilDiv(spec.sliding_window - 1, spec.block_size);
}

// The number of blocks before a boundary that a lookup requires (vLLM's SlidingWindowManager). The
// lookup requires one block even if the window reads none; with EAGLE, that block is the one after
// the boundary.
inline int64_t RequiredWindowBlocks(const GroupSpec& spec) {
  return std::max<int64_t>(spec.eagle ? 0 : 1, WindowBlocks(spec));
}

// The number of computed tokens that an engine keeps for the next token: those that it reads, and
// those that the engine retains in addition.
inline int64_t RetainedWindowTokens(const GroupSpec& spec) {
  return spec.sliding_window - 1 + spec.extra_retained_tokens;
}

}  // namespace kvcast::internal
