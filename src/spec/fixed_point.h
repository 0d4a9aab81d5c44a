// The prefix length on which all groups of a cache agree, found as vLLM's hybrid coordinator does.
//
// Every spec group in turn accepts the candidate or shortens it, until a round leaves it alone. For
// groups whose rules look at a boundary alone this is the highest boundary usable in all of them;
// where a rule depends on the limit of the search (EAGLE, hits inside blocks) the order of the
// searches decides, and it is this one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "src/spec/spec_groups.h"

namespace kvcast::internal {

// The longest hit of one group within max_tokens; with `drop_eagle`, one that leaves the drop unit
// behind it to be computed again.
using GroupSearch = std::function<int64_t(size_t group, int64_t max_tokens, bool drop_eagle)>;

struct FixedPoint {
  int64_t tokens = 0;
  int64_t longest = 0;  // the longest hit of any single search on the way
};

// A search that drops may look up to `eagle_limit` (see EagleLimit), which is at least max_tokens.
FixedPoint FindFixedPoint(std::span<const SpecGroup> groups, int64_t alignment, int64_t max_tokens,
                          int64_t eagle_limit, const GroupSearch& search);

// The tokens that such a search looks at for a candidate of `tokens`: the unit behind it too.
// States are never dropped.
inline int64_t DropLimit(const GroupSpec& spec, int64_t alignment, int64_t tokens,
                         int64_t eagle_limit) {
  if (spec.kind == SpecKind::kMamba) return tokens;
  const int64_t with_unit = tokens + DropUnit(spec, alignment);
  return with_unit < eagle_limit ? with_unit : eagle_limit;
}

}  // namespace kvcast::internal
