// The prefix lengths that other routers would predict from the residency in this index. They are
// used to measure the prediction errors of such routers. The index itself uses none of these rules.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Returns the tokens of the group's resident blocks from the start of the prompt to the first gap.
// Ignores the alignment, EAGLE and partial blocks.
int64_t LeadingTokens(const GroupResidency& group);

// Returns the least LeadingTokens of the groups, or 0 if there are no groups. Called with the
// groups of full kinds, this is the rule MatchPolicy::kFullOnly.
int64_t ShortestLeadingTokens(std::span<const GroupResidency> groups);

// Returns the tokens of the leading hash units that lie inside a resident block of any group. This
// is the rule MatchPolicy::kAnyGroup. `units`: number of hash units to test. REQUIRES:
// hash_block_size divides every block size.
int64_t AnyGroupTokens(std::span<const GroupResidency> groups, int64_t hash_block_size,
                       int64_t units);

}  // namespace kvcast::router
