// SPDX-License-Identifier: Apache-2.0
#include "router/rules/reuse_probe.h"

#include <algorithm>

#include "router/rules/limiting_group.h"
#include "src/spec/window.h"

namespace kvcast::router {
namespace {

using Groups = std::span<const GroupResidency>;

int64_t Served(const ReuseProbe& probe, Groups groups, int64_t alignment) {
  const int64_t tokens =
      ReusablePrefix(groups, probe.hash_block_size, alignment, probe.tokens).tokens;
  return tokens > probe.replay_tokens ? tokens : 0;
}

// Returns the first group that serves no prefix even alone; nullopt: none.
std::optional<size_t> FirstWithout(const Reuse& reuse) {
  const auto none = std::ranges::find(reuse.per_group_tokens, 0);
  if (none == reuse.per_group_tokens.end()) return std::nullopt;
  return static_cast<size_t>(none - reuse.per_group_tokens.begin());
}

// Returns the limiting group. If several groups limit together, returns the first that serves no
// prefix alone.
std::optional<size_t> Limiting(const ReuseProbe& probe) {
  const Reuse reuse =
      ReusablePrefix(probe.held, probe.hash_block_size, probe.alignment, probe.tokens);
  const auto one =
      LimitingGroup(probe.held, reuse, probe.hash_block_size, probe.alignment, probe.tokens, 0);
  return one ? one : FirstWithout(reuse);
}

size_t Coarsest(Groups groups) {
  const auto coarsest = std::ranges::max_element(
      groups, {}, [](const GroupResidency& group) { return group.spec.block_size; });
  return static_cast<size_t>(coarsest - groups.begin());
}

// True if the groups would serve a prefix with the removed blocks. Tries the removed blocks of the
// groups that have the limiting group's spec, and the removed blocks of all groups.
bool ServedBeforeRemovals(const ReuseProbe& probe, size_t limiting) {
  std::vector<GroupResidency> groups(probe.held.begin(), probe.held.end());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].spec == probe.held[limiting].spec) groups[i] = probe.held_or_removed[i];
  }
  return Served(probe, groups, probe.alignment) > 0 ||
         Served(probe, probe.held_or_removed, probe.alignment) > 0;
}

bool AnyUnannounced(const ReuseProbe& probe, size_t limiting, size_t& group) {
  for (size_t i = 0; i < probe.held.size(); ++i) {
    if (probe.announced[i] || probe.held[i].spec != probe.held[limiting].spec) continue;
    group = i;
    return true;
  }
  return false;
}

// Adds the blocks of the group that serve the boundary to `used`.
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
  // The block behind the boundary, which is given up for a draft head, serves the boundary too.
  const int64_t last = std::min(group.blocks.size(), end + (spec.eagle ? 1 : 0));
  for (int64_t i = std::max<int64_t>(begin, 0); i < last; ++i) {
    if (group.blocks.Test(i)) used.Set(i);
  }
}

}  // namespace

ProbeFinding Explain(const ReuseProbe& probe) {
  const bool misaligned = probe.alignment != probe.group_alignment;
  if (Served(probe, probe.held, probe.alignment) > 0) return {};
  if (misaligned && Served(probe, probe.held, probe.group_alignment) > 0) {
    return {.lost = true, .cause = ReuseCause::kToldAlignmentWrong, .part = {}};
  }
  if (probe.tokens < probe.alignment) {
    return {.lost = true, .cause = ReuseCause::kAlignmentTooCoarse, .part = Coarsest(probe.held)};
  }
  const std::optional<size_t> limiting = Limiting(probe);
  if (!limiting) return {.lost = true, .cause = {}, .part = {}};
  if (size_t group = 0; AnyUnannounced(probe, *limiting, group)) {
    return {.lost = true, .cause = ReuseCause::kNeverAnnounced, .part = group};
  }
  if (ServedBeforeRemovals(probe, *limiting)) {
    return {.lost = true, .cause = ReuseCause::kEvictedFirst, .part = limiting};
  }
  if (probe.hash_block_size < probe.alignment &&
      Served(probe, probe.held, probe.hash_block_size) > 0) {
    return {.lost = true, .cause = ReuseCause::kAlignmentTooCoarse, .part = Coarsest(probe.held)};
  }
  if (probe.content_unknown) return {.lost = true, .cause = {}, .part = limiting};
  return {.lost = true, .cause = ReuseCause::kNeverStored, .part = limiting};
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
