// The longest prefix that all groups of a cache accept. The algorithm is that of vLLM's hybrid
// coordinator.
//
// A spec group is a set of groups with equal specs (spec_groups.h). In each round, one spec group
// after the other accepts the candidate length or shortens it. The search ends when a round does
// not change the candidate. One round is enough for a single spec group, and for full attention
// with one more spec group. For groups whose rules depend only on the boundary, the result is the
// highest boundary that is usable in all groups. If a rule depends on the limit of the search
// (EAGLE, hits inside blocks), the order of the searches matters. The order here is vLLM's order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "src/spec/spec_groups.h"

namespace kvcast::internal {

// Returns the longest hit of one group within max_tokens. With `drop_eagle`, the group must also
// hold the drop unit after the hit (see DropUnit). This unit is not part of the hit, and the engine
// computes it again.
using GroupSearch = std::function<int64_t(size_t group, int64_t max_tokens, bool drop_eagle)>;

struct FixedPoint {
  int64_t tokens = 0;
  int64_t longest = 0;  // the longest hit that any single search returned
};

// A search with drop_eagle may examine up to `eagle_limit` tokens (see EagleLimit). A value below
// max_tokens counts as max_tokens.
FixedPoint FindFixedPoint(std::span<const SpecGroup> groups, int64_t alignment, int64_t max_tokens,
                          int64_t eagle_limit, const GroupSearch& search);

// The number of tokens that a search with drop_eagle examines for a candidate of `tokens` tokens:
// the candidate and the drop unit after it, at most `eagle_limit`. Mamba groups drop no unit.
inline int64_t DropLimit(const GroupSpec& spec, int64_t alignment, int64_t tokens,
                         int64_t eagle_limit) {
  if (spec.kind == SpecKind::kMamba) return tokens;
  const int64_t with_unit = tokens + DropUnit(spec, alignment);
  return with_unit < eagle_limit ? with_unit : eagle_limit;
}

}  // namespace kvcast::internal
