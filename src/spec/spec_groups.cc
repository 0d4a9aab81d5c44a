// SPDX-License-Identifier: Apache-2.0
#include "src/spec/spec_groups.h"

#include <algorithm>

namespace kvcast::internal {
namespace {

bool SameSpec(GroupSpec a, const GroupSpec& b) {
  a.eagle = b.eagle;
  return a == b;
}

}  // namespace

std::vector<SpecGroup> GroupBySpec(std::span<const GroupSpec* const> specs) {
  std::vector<SpecGroup> groups;
  for (size_t i = 0; i < specs.size(); ++i) {
    const GroupSpec& spec = *specs[i];
    if (!TakesPart(spec)) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const SpecGroup& group) {
      return SameSpec(group.spec, spec);
    });
    if (same == groups.end()) {
      groups.push_back({spec, {i}});
      continue;
    }
    same->members.push_back(i);
    same->spec.eagle |= spec.eagle;
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const SpecGroup& group) { return IsFullKind(group.spec.kind); });
  return groups;
}

}  // namespace kvcast::internal
