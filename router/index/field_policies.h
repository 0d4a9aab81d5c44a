// What routers in the field would promise on the residency that the index knows, so that their
// error can be measured. None of these rules is ours.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Tokens of the group's blocks that are resident from the start of the prompt without a hole. No
// grid, no EAGLE, no blocks in part.
int64_t LeadingTokens(const GroupResidency& group);

// The shortest of the groups' leading tokens: MatchPolicy::kFullOnly over the full groups. 0
// without groups.
int64_t ShortestLeadingTokens(std::span<const GroupResidency> groups);

// The leading hash units that lie inside a resident block of any group: MatchPolicy::kAnyGroup.
// REQUIRES: unit divides every block size.
int64_t AnyGroupTokens(std::span<const GroupResidency> groups, int64_t unit, int64_t units);

}  // namespace kvcast::router
