// SPDX-License-Identifier: Apache-2.0
#include "router/rules/reuse_probe.h"

#include <algorithm>

#include "router/rules/limiting_group.h"
#include "src/spec/window.h"

namespace kvcast::router {
namespace {

using Groups = std::span<const GroupResidency>;

// Returns the length of the prefix that the groups serve; 0 if a hit of this length does not count.
int64_t ServedTokens(const ReuseProbe& probe, Groups groups, int64_t alignment) {
  const int64_t tokens =
      ReusablePrefix(groups, probe.hash_block_size, alignment, probe.tokens).tokens;
  return tokens > probe.replay_tokens ? tokens : 0;
}

// Returns the first group that serves no prefix even without the other groups; nullopt: none.
std::optional<size_t> FirstServingNothing(const Reuse& reuse) {
  const auto none = std::ranges::find(reuse.per_group_tokens, 0);
  if (none == reuse.per_group_tokens.end()) return std::nullopt;
  return static_cast<size_t>(none - reuse.per_group_tokens.begin());
}

// Returns the limiting group. If several groups limit the hit together, returns the first of them
// that serves no prefix even without the other groups.
std::optional<size_t> LimitingGroupOf(const ReuseProbe& probe) {
  const Reuse reuse =
      ReusablePrefix(probe.held, probe.hash_block_size, probe.alignment, probe.tokens);
  const auto single =
      LimitingGroup(probe.held, reuse, probe.hash_block_size, probe.alignment, probe.tokens, 0);
  return single ? single : FirstServingNothing(reuse);
}

size_t CoarsestGroup(Groups groups) {
  const auto coarsest = std::ranges::max_element(
      groups, {}, [](const GroupResidency& group) { return group.spec.block_size; });
  return static_cast<size_t>(coarsest - groups.begin());
}

// True if the groups would serve a prefix with removed blocks. Adds the removed blocks of the
// groups that have the limiting group's spec. If this is not enough, adds the removed blocks of all
// groups.
bool ServedBeforeRemovals(const ReuseProbe& probe, size_t limiting) {
  std::vector<GroupResidency> groups(probe.held.begin(), probe.held.end());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].spec == probe.held[limiting].spec) groups[i] = probe.held_or_removed[i];
  }
  return ServedTokens(probe, groups, probe.alignment) > 0 ||
         ServedTokens(probe, probe.held_or_removed, probe.alignment) > 0;
}

// Returns the first group with the limiting group's spec that no store has named; nullopt: none.
std::optional<size_t> UnannouncedGroup(const ReuseProbe& probe, size_t limiting) {
  for (size_t i = 0; i < probe.held.size(); ++i) {
    if (!probe.announced[i] && probe.held[i].spec == probe.held[limiting].spec) return i;
  }
  return std::nullopt;
}

// Sets the bits in `used` of the blocks of the group that serve the boundary.
void MarkServing(const GroupResidency& group, int64_t boundary, Bitmap& used) {
  const GroupSpec& spec = group.spec;
  const int64_t end = CeilDiv(boundary, spec.block_size);
  int64_t begin = 0;
  if (spec.kind == SpecKind::kMamba) {
    begin = boundary % spec.block_size == 0 ? end - 1 : end;
  } else if (IsWindowKind(spec.kind)) {
    begin = end - internal::RequiredWindowBlocks(spec);
  } else if (spec.kind == SpecKind::kChunkedLocalAttention && spec.chunk_size > 0) {
    begin = boundary / spec.chunk_size * spec.chunk_size / spec.block_size;
  }
  // If the group has a draft head, a hit also needs the block after the boundary.
  const int64_t last = std::min(group.blocks.size(), end + (spec.eagle ? 1 : 0));
  for (int64_t i = std::max<int64_t>(begin, 0); i < last; ++i) {
    if (group.blocks.Test(i)) used.Set(i);
  }
}

}  // namespace

ProbeFinding Explain(const ReuseProbe& probe) {
  const bool misaligned = probe.alignment != probe.group_alignment;
  if (ServedTokens(probe, probe.held, probe.alignment) > 0) return {};
  if (misaligned && ServedTokens(probe, probe.held, probe.group_alignment) > 0) {
    return {.lost = true, .cause = ReuseCause::kToldAlignmentWrong, .group = {}};
  }
  if (probe.tokens < probe.alignment) {
    return {
        .lost = true, .cause = ReuseCause::kAlignmentTooCoarse, .group = CoarsestGroup(probe.held)};
  }
  const std::optional<size_t> limiting = LimitingGroupOf(probe);
  if (!limiting) return {.lost = true, .cause = {}, .group = {}};
  if (const auto group = UnannouncedGroup(probe, *limiting)) {
    return {.lost = true, .cause = ReuseCause::kNeverAnnounced, .group = group};
  }
  if (ServedBeforeRemovals(probe, *limiting)) {
    return {.lost = true, .cause = ReuseCause::kEvictedFirst, .group = limiting};
  }
  if (probe.hash_block_size < probe.alignment &&
      ServedTokens(probe, probe.held, probe.hash_block_size) > 0) {
    return {
        .lost = true, .cause = ReuseCause::kAlignmentTooCoarse, .group = CoarsestGroup(probe.held)};
  }
  if (probe.content_unknown) return {.lost = true, .cause = {}, .group = limiting};
  return {.lost = true, .cause = ReuseCause::kNeverStored, .group = limiting};
}

std::vector<Bitmap> UsableBlocks(std::span<const GroupResidency> groups, int64_t hash_block_size,
                                 int64_t alignment, int64_t tokens) {
  const int64_t units = tokens / hash_block_size;
  std::vector<Bitmap> serves;
  std::vector<Bitmap> used;
  for (const GroupResidency& group : groups) {
    serves.push_back(UsableBoundaries(group, hash_block_size, units, alignment));
    used.emplace_back(group.blocks.size());
  }
  bool highest = true;
  for (int64_t end = tokens / alignment * alignment; end > 0; end -= alignment) {
    const bool by_all = std::ranges::all_of(
        serves, [&](const Bitmap& of_group) { return of_group.Test(end / hash_block_size); });
    if (!by_all) continue;
    for (size_t i = 0; i < groups.size(); ++i) {
      // For full kinds, a lower boundary needs only blocks that the highest boundary needs.
      if (highest || !IsFullKind(groups[i].spec.kind)) MarkServing(groups[i], end, used[i]);
    }
    highest = false;
  }
  return used;
}

}  // namespace kvcast::router
