// ReusablePrefix: applies the rules of reuse.cc with the engine's fixed point.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "kvcast/spec/reuse.h"
#include "src/base/check.h"
#include "src/spec/fixed_point.h"

namespace kvcast {
namespace {

using internal::SpecGroup;

// Keeps the bits that are set in both bitmaps. Bits after the end of either bitmap read as 0.
void Intersect(Bitmap& bitmap, const Bitmap& other) {
  const auto words = bitmap.words();
  const auto others = other.words();
  for (size_t w = 0; w < words.size(); ++w) words[w] &= w < others.size() ? others[w] : 0;
}

// The residency that all members of a spec group have in common.
GroupResidency CommonResidency(const SpecGroup& group, std::span<const GroupResidency> groups) {
  GroupResidency common = groups[group.members[0]];
  common.spec = group.spec;
  for (const size_t member : std::span(group.members).subspan(1)) {
    Intersect(common.blocks, groups[member].blocks);
    Intersect(common.partial_ends, groups[member].partial_ends);
  }
  return common;
}

// As HighestBoundary, but at most `limit`. If each call's limit is at most the result of the
// previous call, all calls together visit each boundary once.
int64_t HighestUpTo(const Bitmap& usable, int64_t step, int64_t limit) {
  int64_t boundary = std::min(limit, usable.size() - 1) / step * step;
  while (boundary > 0 && !usable.Test(boundary)) boundary -= step;
  return std::max<int64_t>(boundary, 0);
}

}  // namespace

Reuse ReusablePrefix(std::span<const GroupResidency> groups, int64_t hash_block_size,
                     int64_t alignment, int64_t max_tokens, int64_t eagle_limit) {
  KV_CHECK(hash_block_size > 0 && alignment > 0 && alignment % hash_block_size == 0);
  std::vector<const GroupSpec*> specs;
  for (const GroupResidency& group : groups) specs.push_back(&group.spec);
  const std::vector<SpecGroup> spec_groups = internal::GroupBySpec(specs);
  std::vector<GroupResidency> residencies;
  for (const SpecGroup& group : spec_groups) residencies.push_back(CommonResidency(group, groups));

  max_tokens = std::max<int64_t>(0, max_tokens);
  const int64_t step = alignment / hash_block_size;
  std::vector<std::optional<Bitmap>> boundaries(spec_groups.size());
  const auto search = [&](size_t index, int64_t limit, bool drop_eagle) {
    GroupResidency& group = residencies[index];
    group.spec.eagle = drop_eagle;
    const auto usable = [&](int64_t tokens) {
      return UsableBoundaries(group, hash_block_size, tokens / hash_block_size, alignment);
    };
    // With EAGLE or full attention, the boundaries depend on the limit. Such searches are few. In
    // all other searches, the limit only cuts the boundaries off, so they are computed once.
    if (drop_eagle || IsFullKind(group.spec.kind)) {
      return HighestBoundary(usable(limit), step) * hash_block_size;
    }
    if (!boundaries[index]) boundaries[index] = usable(max_tokens);
    return HighestUpTo(*boundaries[index], step, limit / hash_block_size) * hash_block_size;
  };
  eagle_limit = std::max(eagle_limit, max_tokens);
  Reuse reuse;
  reuse.tokens =
      internal::FindFixedPoint(spec_groups, alignment, max_tokens, eagle_limit, search).tokens;
  reuse.per_group_tokens.assign(groups.size(), 0);
  for (size_t i = 0; i < spec_groups.size() && max_tokens > 0; ++i) {
    const GroupSpec& spec = spec_groups[i].spec;
    const int64_t limit =
        spec.eagle ? internal::DropLimit(spec, alignment, max_tokens, eagle_limit) : max_tokens;
    const int64_t alone = search(i, limit, spec.eagle);
    for (const size_t member : spec_groups[i].members) reuse.per_group_tokens[member] = alone;
  }
  return reuse;
}

}  // namespace kvcast
