// Which blocks of a store's token span its hashes name, where that can be proved.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::router {

inline constexpr int64_t kNoBlock = -1;

// The span of a store: `blocks` whole blocks, of which the hashes, in order of position, name some.
// blocks_of[i] is the block of hash i, from the span's start, or kNoBlock.

// Places hashes between placed ones (or the span's ends) that are as many as the blocks there.
// False: the placed ones contradict each other; nothing changed.
bool PlaceByCounting(int64_t blocks, std::vector<int64_t>& blocks_of);

// Places hashes where every choice of blocks that the engine's caching rule allows, that has as
// many hashes, and that agrees with those placed already puts them into the same block. Groups of
// kinds without such a rule are left alone. `first_block` is the span's first block in the prompt.
// False: no choice agrees, so that the rule cannot be the engine's.
bool PlaceByRule(const SparseRule& rule, const GroupSpec& spec, int64_t first_block, int64_t blocks,
                 std::vector<int64_t>& blocks_of);

}  // namespace kvcast::router
