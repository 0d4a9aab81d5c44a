// SPDX-License-Identifier: Apache-2.0
#include "router/rules/limiting_group.h"

#include <algorithm>
#include <vector>

namespace kvcast::router {
namespace {

std::vector<GroupResidency> Without(std::span<const GroupResidency> groups, const GroupSpec& spec) {
  std::vector<GroupResidency> others;
  std::copy_if(groups.begin(), groups.end(), std::back_inserter(others),
               [&spec](const GroupResidency& group) { return group.spec != spec; });
  return others;
}

}  // namespace

std::optional<size_t> LimitingGroup(std::span<const GroupResidency> groups, const Reuse& reuse,
                                    int64_t hash_block_size, int64_t alignment, int64_t max_tokens,
                                    int64_t eagle_limit) {
  const std::vector<int64_t>& alone = reuse.per_group_tokens;
  const auto shortest = std::min_element(alone.begin(), alone.end());
  if (shortest == alone.end() || *std::max_element(alone.begin(), alone.end()) <= reuse.tokens) {
    return std::nullopt;
  }
  // Usually one group alone serves a prefix of the same length as the hit. Then the expensive loop
  // below is not needed.
  if (*shortest == reuse.tokens) return static_cast<size_t>(shortest - alone.begin());
  std::optional<size_t> limiting;
  int64_t longest = reuse.tokens;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<GroupResidency> others = Without(groups, groups[i].spec);
    const int64_t tokens =
        ReusablePrefix(others, hash_block_size, alignment, max_tokens, eagle_limit).tokens;
    if (others.empty() || tokens <= longest) continue;
    longest = tokens;
    limiting = i;
  }
  return limiting;
}

}  // namespace kvcast::router
