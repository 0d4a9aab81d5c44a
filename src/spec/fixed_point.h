// The prefix length on which all groups of a cache agree, computed as vLLM's hybrid coordinator
// does.
//
// Each spec group in turn accepts the candidate length or shortens it, until a round leaves it
// unchanged. For groups whose rules depend only on the boundary, the result is the highest boundary
// that is usable in all of them. If a rule depends on the limit of the search (EAGLE, hits inside
// blocks), the order of the searches matters. This is vLLM's order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "src/spec/spec_groups.h"

namespace kvcast::internal {

// Returns the longest hit of one group within max_tokens. With `drop_eagle`, the hit leaves out the
// drop unit after it, and that unit is computed again.
using GroupSearch = std::function<int64_t(size_t group, int64_t max_tokens, bool drop_eagle)>;

struct FixedPoint {
  int64_t tokens = 0;
  int64_t longest = 0;  // the longest hit that any single search returned
};

// A search with drop_eagle may look up to `eagle_limit` (see EagleLimit), which is at least
// max_tokens.
FixedPoint FindFixedPoint(std::span<const SpecGroup> groups, int64_t alignment, int64_t max_tokens,
                          int64_t eagle_limit, const GroupSearch& search);

// The number of tokens that such a search examines for a candidate of `tokens`: the candidate and
// the drop unit after it. Mamba states are never dropped.
inline int64_t DropLimit(const GroupSpec& spec, int64_t alignment, int64_t tokens,
                         int64_t eagle_limit) {
  if (spec.kind == SpecKind::kMamba) return tokens;
  const int64_t with_unit = tokens + DropUnit(spec, alignment);
  return with_unit < eagle_limit ? with_unit : eagle_limit;
}

}  // namespace kvcast::internal
