// SPDX-License-Identifier: Apache-2.0
#include "router/rules/worker_rules.h"

#include <algorithm>
#include <span>

namespace kvcast::router {

namespace {

uint32_t Bit(UnknownProperty property) { return static_cast<uint32_t>(property); }

// vLLM drops a block only in the groups that contain a layer of the draft head
// (vllm/v1/core/kv_cache_coordinator.py, v0.33). Groups with equal specs are looked up as one
// group.
bool DifferAndDrop(std::span<const GroupSpec> groups) {
  const auto drops = [](const GroupSpec& group) { return TakesPart(group) && group.eagle; };
  const auto first = std::ranges::find_if(groups, drops);
  return first != groups.end() && std::ranges::any_of(groups, [&](const GroupSpec& group) {
           return drops(group) && group != *first;
         });
}

uint32_t UnknownProperties(const WorkerRules& rules, const WorkerConfig& config,
                           const GroupRegistry& registry, bool release_known, bool conflict) {
  uint32_t unknown = conflict ? Bit(UnknownProperty::kConflict) : 0;
  bool eagle = false;
  for (const GroupSpec& group : rules.groups) {
    if (!TakesPart(group)) continue;
    if (IsWindowKind(group.kind) && group.sliding_window == 0)
      unknown |= Bit(UnknownProperty::kWindow);
    const bool chunked = group.kind == SpecKind::kChunkedLocalAttention;
    if (chunked && group.chunk_size == 0) unknown |= Bit(UnknownProperty::kChunkSize);
    eagle = eagle || group.eagle;
  }
  if (registry.assumes_kinds()) unknown |= Bit(UnknownProperty::kKinds);
  if (eagle && rules.groups.size() > 1 && !release_known) unknown |= Bit(UnknownProperty::kRelease);
  if (registry.assumes_block_sizes()) unknown |= Bit(UnknownProperty::kBlockSize);
  if (registry.assumes_partial_hits()) unknown |= Bit(UnknownProperty::kAlignment);
  // Registered groups are complete and fully described.
  if (!config.groups.empty()) return unknown;
  const bool reuse_shown = rules.shortest_hit > 0;
  // A group that announces no blocks may allow fewer ends of hits. Shown hits bound its block size.
  const bool ends_known =
      config.alignment > 0 || (reuse_shown && rules.alignment % rules.hit_step == 0);
  if (!reuse_shown || !ends_known) unknown |= Bit(UnknownProperty::kGroups);
  const bool drop_known = config.eagle.has_value() || rules.lookahead > 0 || reuse_shown;
  if (!drop_known || rules.drops_in_some_group) unknown |= Bit(UnknownProperty::kEagle);
  // A window group that the engine computes again after a hit announces no blocks, so the stream
  // does not show this group.
  if (!config.replay_tokens) unknown |= Bit(UnknownProperty::kReplay);
  return unknown;
}

// True: vLLM's own pool in host memory (OffloadRule::kMirroredPool) may end a load elsewhere than
// the pool of this library. vLLM's pool also finds parts of blocks. It counts chunks from the end
// of the GPU hit. Before v0.32 (vLLM #49071), its lookup drops no block for a draft head.
bool EndsElsewhereInVllm(const WorkerRules& rules) {
  if (rules.offload_rule != OffloadRule::kMirroredPool) return false;
  if (rules.alignment < rules.block_alignment) return true;
  return std::ranges::any_of(rules.groups, [&rules](const GroupSpec& group) {
    if (!TakesPart(group)) return false;
    return group.kind == SpecKind::kChunkedLocalAttention ||
           (group.eagle && rules.rules < EngineRules::kV032);
  });
}

// Returns the unknown properties that can change the number of tokens that the engine loads behind
// the GPU hit.
uint32_t UnknownPropertiesOfLoads(const WorkerRules& rules, const WorkerConfig& config,
                                  bool release_known) {
  uint32_t unknown = rules.unknown;
  if (!config.offload_rule) unknown |= Bit(UnknownProperty::kOffloadRule);
  if (rules.replay_tokens > 0 || EndsElsewhereInVllm(rules))
    unknown |= Bit(UnknownProperty::kLoadEnd);
  // The release matters in two cases. First: from v0.32 on, the lookup for a draft head goes one
  // chunk further. Second: releases of vLLM's connector count the chunks of a window in different
  // ways.
  const bool depends =
      std::any_of(rules.groups.begin(), rules.groups.end(), [&rules](const GroupSpec& group) {
        const bool windows = rules.offload_rule == OffloadRule::kConnector;
        return TakesPart(group) && (group.eagle || (windows && IsWindowKind(group.kind)));
      });
  if (depends && !release_known) unknown |= Bit(UnknownProperty::kRelease);
  // For a draft head, the lookup of Mamba states drops a chunk in host memory, but no block on the
  // GPU. Reuse on the GPU therefore does not show whether a chunk is dropped.
  const bool drops_states =
      rules.offload_rule != OffloadRule::kMirroredPool &&
      std::any_of(rules.groups.begin(), rules.groups.end(), [](const GroupSpec& group) {
        return TakesPart(group) && group.kind == SpecKind::kMamba;
      });
  const bool drop_told = !config.groups.empty() || config.eagle || rules.lookahead > 0;
  if (drops_states && !drop_told) unknown |= Bit(UnknownProperty::kEagle);
  // For a draft head, vLLM's connector gives up one chunk of full attention. Before v0.32, it gives
  // up a second chunk if a copy in progress makes the lookup start again.
  const bool looks_again = rules.offload_rule == OffloadRule::kConnector &&
                           rules.rules < EngineRules::kV032 && rules.groups.size() > 1;
  const bool full_drops =
      std::any_of(rules.groups.begin(), rules.groups.end(),
                  [](const GroupSpec& group) { return group.eagle && IsFullKind(group.kind); });
  if (looks_again && full_drops) unknown |= Bit(UnknownProperty::kLoadEnd);
  return unknown;
}

}  // namespace

std::vector<GroupSpec> EvaluatedGroups(const WorkerConfig& config, const GroupRegistry& registry,
                                       int64_t lookahead) {
  std::vector<GroupSpec> groups = registry.Specs();
  for (GroupSpec& group : groups) {
    const bool chunked = group.kind == SpecKind::kChunkedLocalAttention;
    // A chunk consists of whole blocks, so another size is not the size of this group's chunks.
    const bool fits = group.block_size > 0 && config.chunk_size % group.block_size == 0;
    if (chunked && group.chunk_size == 0 && fits) group.chunk_size = config.chunk_size;
    if (config.groups.empty() && config.eagle) group.eagle = *config.eagle;
    // The hash of a block covers the tokens after the block, so the lookup drops no block.
    if (lookahead > 0) group.eagle = false;
  }
  return groups;
}

WorkerRules::WorkerRules(const WorkerConfig& config, const GroupRegistry& registry,
                         const Shown& shown)
    : offload_rule(config.offload_rule.value_or(OffloadRule::kConnector)),
      rules(config.rules.value_or(shown.rules.value_or(EngineRules::kMain2026August))),
      hash_block_size(registry.hash_block_size()),
      alignment(registry.alignment()),
      groups(EvaluatedGroups(config, registry,
                             shown.lookahead.value_or(config.hash_lookahead_tokens))),
      blocks_per_chunk(config.blocks_per_chunk),
      block_alignment(registry.hash_block_size() > 0 ? registry.block_alignment() : 0),
      replay_tokens(config.replay_tokens.value_or(0)),
      lookahead(shown.lookahead.value_or(config.hash_lookahead_tokens)),
      shortest_hit(shown.shortest_hit),
      hit_step(shown.hit_step) {
  has_chunks = std::ranges::any_of(groups, [](const GroupSpec& group) {
    return group.kind == SpecKind::kChunkedLocalAttention;
  });
  drops_in_some_group = config.groups.empty() && DifferAndDrop(groups);
  const int64_t registered = config.hash_lookahead_tokens;
  const bool conflict = shown.refused_tiers != 0 || (registered > 0 && registered != lookahead);
  unknown = UnknownProperties(*this, config, registry, config.rules || shown.rules, conflict);
  // Workers with equal rules are compared as one class, so a step without effect is left out.
  if ((unknown & Bit(UnknownProperty::kGroups)) == 0) hit_step = 0;
  unknown_with_cpu = UnknownPropertiesOfLoads(*this, config, config.rules || shown.rules);
  const auto takes_part_as = [](bool chunked) {
    return [chunked](const GroupSpec& spec) {
      return TakesPart(spec) && chunked == (spec.kind == SpecKind::kChunkedLocalAttention);
    };
  };
  // Learned groups may be incomplete: a group that no event has named may have chunked attention.
  nothing_without_blocks = config.groups.empty()
                               ? std::ranges::any_of(groups, takes_part_as(/*chunked=*/false))
                               : std::ranges::none_of(groups, takes_part_as(/*chunked=*/true));
  // The worker may hold blocks that the index does not find.
  if (conflict) nothing_without_blocks = false;
  leading_run = !groups.empty() && hash_block_size > 0 && alignment > 0 && replay_tokens == 0 &&
                std::all_of(groups.begin(), groups.end(), [&](const GroupSpec& spec) {
                  return spec == groups[0] && IsFullKind(spec.kind) && TakesPart(spec) &&
                         !spec.eagle && spec.block_size == hash_block_size;
                });
}

}  // namespace kvcast::router
