// Finds the group that makes a hit shorter than it could be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Returns the position in `groups` of the limiting group:
// - The first group that alone serves no more than the hit.
// - If there is no such group: the group without which the other groups serve the longest prefix.
//   Groups with the spec of this group are left out too. If several groups give the same length,
//   the first of them is returned.
// nullopt: every group alone serves no more than the hit, or the hit does not become longer without
// any single group. `reuse` must be the result of ReusablePrefix with the same arguments.
std::optional<size_t> LimitingGroup(std::span<const GroupResidency> groups, const Reuse& reuse,
                                    int64_t hash_block_size, int64_t alignment, int64_t max_tokens,
                                    int64_t eagle_limit);

}  // namespace kvcast::router
