// Groups whose specs are equal except `eagle`. An engine caches and looks up such groups together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast::internal {

struct SpecGroup {
  GroupSpec spec;               // eagle: true if it is true in any member
  std::vector<size_t> members;  // positions in the input
};

// The groups that take part in prefix caching, merged by spec. Full attention comes first, because
// its scan from the left gives the other groups a tight bound. Otherwise the order is that of the
// first members.
std::vector<SpecGroup> GroupBySpec(std::span<const GroupSpec* const> specs);

// A lookup for a draft head needs this number of tokens after a hit too. The engine computes these
// tokens again. The number is `alignment` if hits may end inside a block, otherwise block_size.
inline int64_t DropUnit(const GroupSpec& spec, int64_t alignment) {
  return alignment < spec.block_size ? alignment : spec.block_size;
}

}  // namespace kvcast::internal
