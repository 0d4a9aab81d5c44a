// Groups with equal specs, which an engine caches and looks up together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast::internal {

struct SpecGroup {
  GroupSpec spec;               // eagle is set if any member has it
  std::vector<size_t> members;  // positions in the input
};

// The groups that take part in prefix caching, collected by spec, in the order of their first
// member. Full attention comes first, because its scan from the left gives the other groups a tight
// bound.
std::vector<SpecGroup> GroupBySpec(std::span<const GroupSpec* const> specs);

// The number of tokens after a hit of this group that are computed again for a draft head. If hits
// may end inside a block, this is one step of the hit grid; otherwise one block.
inline int64_t DropUnit(const GroupSpec& spec, int64_t alignment) {
  return alignment < spec.block_size ? alignment : spec.block_size;
}

}  // namespace kvcast::internal
