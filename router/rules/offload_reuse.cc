// SPDX-License-Identifier: Apache-2.0
#include "router/rules/offload_reuse.h"

#include <algorithm>

#include "kvcast/spec/offload_rules.h"

namespace kvcast::router {
namespace {

Result<OffloadLayout> LayoutOf(std::span<const GroupResidency> groups, const OffloadQuery& query) {
  OffloadLayoutConfig config;
  config.tokens_per_hash = query.hash_block_size;
  config.blocks_per_chunk = query.blocks_per_chunk;
  config.compatible = query.compatible;
  config.rules = query.rules;
  for (const GroupResidency& group : groups) {
    // Events do not contain the Mamba mode. A group in mode kNone announces no states. A group in
    // mode kAll has blocks of one hash unit. So a group with larger blocks is in mode kAlign.
    config.groups.emplace_back(group.spec).mamba_mode = MambaMode::kAlign;
  }
  return OffloadLayout::Derive(config);
}

// True if the announced beginning of a block may be part of a longer beginning of the same block. A
// longer beginning announces each of its units, so the unit after `boundary` is announced too.
// Groups of states are left out, because a state does not announce each unit.
bool MayBeOfALongerEnd(const OffloadLayout& layout, std::span<const GroupResidency> groups,
                       int64_t boundary) {
  return std::any_of(layout.groups.begin(), layout.groups.end(), [&](const OffloadGroup& group) {
    const int64_t end = boundary + group.tail_margin;
    if (group.requires_cow_source || end % group.tokens_per_block == 0) return false;
    return groups[group.index.value].partial_ends.Test(end / layout.tokens_per_hash);
  });
}

// True if the gain may become 0. While a copy is in progress, the lookup visits a group again. It
// then loses a gain that is less than one chunk of this group.
bool MayBeNothing(const OffloadLayout& layout, int64_t gain) {
  return gain > 0 &&
         std::any_of(layout.groups.begin(), layout.groups.end(),
                     [gain](const OffloadGroup& group) { return gain < group.tokens_per_chunk; });
}

}  // namespace

OffloadReuse ReusableWithOffload(std::span<const GroupResidency> groups,
                                 const OffloadQuery& query) {
  const auto layout = LayoutOf(groups, query);
  if (!layout.ok()) return {query.local_tokens};
  OffloadQuestion question;
  // A group with unknown window is evaluated as a full group, but it limits the prefix as a window
  // group does.
  const bool window_asked_as_full = !query.full_kinds_only && !layout->has_windows();
  question.num_tokens = query.prompt_tokens - (window_asked_as_full ? 1 : 0);
  question.prompt_tokens = query.prompt_tokens;
  question.local_tokens = query.local_tokens;
  question.num_hashes = query.units;
  OffloadAnswers held;
  held.chunk = [&](size_t group, int64_t chunk) {
    const Bitmap& blocks = groups[layout->groups[group].index.value].blocks;
    const bool hit = blocks.Test((chunk + 1) * query.blocks_per_chunk - 1);
    return hit ? LookupResult::kHit : LookupResult::kMiss;
  };
  held.tail = [&](size_t group, int64_t tokens) {
    const int64_t chunk = layout->groups[group].tokens_per_chunk;
    if (tokens % chunk == 0) return held.chunk(group, tokens / chunk - 1);
    const Bitmap& ends = groups[layout->groups[group].index.value].partial_ends;
    return ends.Test(tokens / query.hash_block_size - 1) ? LookupResult::kHit : LookupResult::kMiss;
  };
  const OffloadAnswer answer = LookupOffloaded(*layout, question, held);
  const int64_t tokens =
      std::min(query.local_tokens + answer.tokens.value_or(0), query.prompt_tokens - 1);
  const bool certain = answer.tail_boundary
                           ? !MayBeOfALongerEnd(*layout, groups, *answer.tail_boundary)
                           : !MayBeNothing(*layout, answer.tokens.value_or(0));
  return {std::max(query.local_tokens, tokens), certain};
}

int64_t ReusableWithMirroredPool(std::span<const GroupResidency> groups,
                                 const MirroredPoolQuery& query) {
  if (query.local_tokens % query.alignment != 0) return query.local_tokens;
  std::vector<GroupResidency> behind;
  for (const GroupResidency& group : groups) {
    const int64_t block_size = group.spec.block_size;
    const int64_t local = query.local_tokens / block_size;
    GroupResidency& group_behind = behind.emplace_back();
    group_behind.spec = group.spec;
    group_behind.tokens_before = query.local_tokens;
    group_behind.blocks.Resize(std::max<int64_t>(group.blocks.size() - local, 0));
    for (int64_t i = 0; i < group_behind.blocks.size(); ++i) {
      if (group.blocks.Test(local + i)) group_behind.blocks.Set(i);
    }
  }
  const int64_t size = query.hash_block_size;
  const int64_t hashed_tokens = query.units * size - query.local_tokens;
  const int64_t max_tokens =
      std::min((query.prompt_tokens - 1 - query.local_tokens) / size * size, hashed_tokens);
  if (behind.empty() || max_tokens <= 0) return query.local_tokens;
  const int64_t eagle_limit = EagleLimit(query.rules, query.num_groups, max_tokens, hashed_tokens);
  return query.local_tokens +
         ReusablePrefix(behind, size, query.alignment, max_tokens, eagle_limit).tokens;
}

}  // namespace kvcast::router
