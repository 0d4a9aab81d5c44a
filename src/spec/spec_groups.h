// Groups with equal specs, which an engine caches and looks up as one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast::internal {

struct SpecGroup {
  GroupSpec spec;               // eagle: of any member
  std::vector<size_t> members;  // positions in the input
};

// The groups that take part in prefix caching by spec, in order of their first member, but full
// attention first: its scan from the left gives the others a tight bound.
std::vector<SpecGroup> GroupBySpec(std::span<const GroupSpec* const> specs);

// What a hit of this group leaves to be computed again for a draft head: a step of the grid of hits
// where hits may end inside a block, else a block.
inline int64_t DropUnit(const GroupSpec& spec, int64_t alignment) {
  return alignment < spec.block_size ? alignment : spec.block_size;
}

}  // namespace kvcast::internal
