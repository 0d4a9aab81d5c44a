// Finds the group that makes a hit shorter than it could be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Returns the position in `groups` of the limiting group: without it, and without the groups of
// equal spec, the others could serve the longest prefix. Of equal results the first is returned.
// nullopt: no group alone limits the hit. `reuse` must be the result of ReusablePrefix with the
// same arguments.
std::optional<size_t> LimitingGroup(std::span<const GroupResidency> groups, const Reuse& reuse,
                                    int64_t unit, int64_t alignment, int64_t max_tokens,
                                    int64_t eagle_limit);

}  // namespace kvcast::router
