// Sparse spans: find the block that each hash of a store names in the store's token span, if this
// block can be proven.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::router {

inline constexpr int64_t kNoBlock = -1;

// The span of a store has `blocks` whole blocks. The hashes of the store name some of these blocks,
// in order of position. blocks_of[i] is the block of hash i, counted from the span's start, or
// kNoBlock.

// Places the hashes between two placed hashes (or the ends of the span) if the number of these
// hashes equals the number of blocks in between. False: the placed hashes contradict each other;
// nothing changed.
bool PlaceByCounting(int64_t blocks, std::vector<int64_t>& blocks_of);

// Considers every choice of blocks that meets three conditions: the engine's caching rule allows
// the choice, the choice has one block per hash, and the choice agrees with the placed hashes.
// Places a hash if all these choices put the hash into the same block. Does nothing for kinds
// without such a rule. `first_block`: the span's first block in the prompt. False: no choice
// agrees, so the rule is not the engine's rule.
bool PlaceByRule(const SparseRule& rule, const GroupSpec& spec, int64_t first_block, int64_t blocks,
                 std::vector<int64_t>& blocks_of);

}  // namespace kvcast::router
