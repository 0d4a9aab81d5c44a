// Finds the group that makes a hit shorter than it could be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Returns the position in `groups` of the limiting group. If some groups alone serve no more than
// the hit, the limiting group is the first of them. Otherwise the function leaves out one group
// after the other, each together with the groups of equal spec. The limiting group is then the
// group without which the other groups serve the longest prefix. If several groups give the same
// length, the limiting group is the first of these. nullopt: no group alone serves more than the
// hit, or no group alone limits the hit. `reuse` must be the result of ReusablePrefix with the same
// arguments.
std::optional<size_t> LimitingGroup(std::span<const GroupResidency> groups, const Reuse& reuse,
                                    int64_t hash_block_size, int64_t alignment, int64_t max_tokens,
                                    int64_t eagle_limit);

}  // namespace kvcast::router
