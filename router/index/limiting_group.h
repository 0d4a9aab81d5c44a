// Which group is to blame for a hit that is shorter than it could be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// The position in `groups` of the group (with those of equal spec) without which the others could
// serve the longest prefix; the first of equals. nullopt: none of them alone could serve more than
// the hit. `reuse` is ReusablePrefix of the same arguments.
std::optional<size_t> LimitingGroup(std::span<const GroupResidency> groups, const Reuse& reuse,
                                    int64_t unit, int64_t alignment, int64_t max_tokens,
                                    int64_t eagle_limit);

}  // namespace kvcast::router
