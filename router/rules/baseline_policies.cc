// SPDX-License-Identifier: Apache-2.0
#include "router/rules/baseline_policies.h"

#include <algorithm>

namespace kvcast::router {

int64_t LeadingTokens(const GroupResidency& group) {
  int64_t blocks = 0;
  while (group.blocks.Test(blocks)) ++blocks;
  return blocks * group.spec.block_size;
}

int64_t ShortestLeadingTokens(std::span<const GroupResidency> groups) {
  if (groups.empty()) return 0;
  int64_t shortest = LeadingTokens(groups[0]);
  for (const GroupResidency& group : groups.subspan(1)) {
    shortest = std::min(shortest, LeadingTokens(group));
  }
  return shortest;
}

int64_t AnyGroupTokens(std::span<const GroupResidency> groups, int64_t hash_block_size,
                       int64_t units) {
  const auto held = [&](int64_t position) {
    return std::any_of(groups.begin(), groups.end(), [&](const GroupResidency& group) {
      return group.blocks.Test(position * hash_block_size / group.spec.block_size);
    });
  };
  int64_t position = 0;
  while (position < units && held(position)) ++position;
  return position * hash_block_size;
}

}  // namespace kvcast::router
