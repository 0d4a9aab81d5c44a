// SPDX-License-Identifier: Apache-2.0
#include "router/index/worker_rules.h"

#include <algorithm>

namespace kvcast::router {

namespace {

uint32_t Bit(Untold property) { return static_cast<uint32_t>(property); }

uint32_t UntoldOf(const WorkerRules& rules, const WorkerConfig& config,
                  const GroupCatalogue& catalogue, bool release_known) {
  uint32_t untold = 0;
  bool eagle = false;
  for (const GroupSpec& group : rules.groups) {
    if (!TakesPart(group)) continue;
    if (IsWindowKind(group.kind) && group.sliding_window == 0) untold |= Bit(Untold::kWindow);
    const bool chunked = group.kind == SpecKind::kChunkedLocalAttention;
    if (chunked && group.chunk_size == 0) untold |= Bit(Untold::kChunkSize);
    eagle = eagle || group.eagle;
  }
  if (catalogue.assumes_kinds()) untold |= Bit(Untold::kKinds);
  if (eagle && rules.groups.size() > 1 && !release_known) untold |= Bit(Untold::kRelease);
  if (catalogue.assumes_block_sizes()) untold |= Bit(Untold::kBlockSize);
  if (catalogue.assumes_partial_hits()) untold |= Bit(Untold::kAlignment);
  // Groups that are registered are all that there are, with all that is to be known of them.
  if (!config.groups.empty()) return untold;
  const bool reuse_shown = rules.shortest_hit > 0;
  if (!reuse_shown) untold |= Bit(Untold::kGroups);
  const bool drop_known = config.eagle.has_value() || rules.lookahead > 0 || reuse_shown;
  if (!drop_known) untold |= Bit(Untold::kEagle);
  // The group whose windows are computed again announces nothing.
  if (!config.replay_tokens) untold |= Bit(Untold::kReplay);
  return untold;
}

// Properties that a load behind the hit depends on.
uint32_t UntoldOfLoads(const WorkerRules& rules, const WorkerConfig& config, bool release_known) {
  uint32_t untold = rules.untold;
  if (!config.offload_rule) untold |= Bit(Untold::kOffloadRule);
  if (rules.replay_tokens > 0) untold |= Bit(Untold::kLoadEnd);
  // Where a draft head looks one chunk further; and how vLLM's connector counts a window's chunks.
  const bool depends =
      std::any_of(rules.groups.begin(), rules.groups.end(), [&rules](const GroupSpec& group) {
        const bool windows = rules.offload_rule == OffloadRule::kConnector;
        return TakesPart(group) && (group.eagle || (windows && IsWindowKind(group.kind)));
      });
  if (depends && !release_known) untold |= Bit(Untold::kRelease);
  // A lookup of states drops nothing on the GPU and a chunk in host memory: reuse on the GPU does
  // not tell that.
  const bool drops_states =
      rules.offload_rule != OffloadRule::kMirroredPool &&
      std::any_of(rules.groups.begin(), rules.groups.end(), [](const GroupSpec& group) {
        return TakesPart(group) && group.kind == SpecKind::kMamba;
      });
  const bool drop_told = !config.groups.empty() || config.eagle || rules.lookahead > 0;
  if (drops_states && !drop_told) untold |= Bit(Untold::kEagle);
  // Until v0.32 vLLM's connector gives up a chunk of full attention a second time where a copy
  // under way made it look again.
  const bool looks_again = rules.offload_rule == OffloadRule::kConnector &&
                           rules.rules < EngineRules::kV032 && rules.groups.size() > 1;
  const bool full_drops =
      std::any_of(rules.groups.begin(), rules.groups.end(),
                  [](const GroupSpec& group) { return group.eagle && IsFullKind(group.kind); });
  if (looks_again && full_drops) untold |= Bit(Untold::kLoadEnd);
  return untold;
}

}  // namespace

WorkerRules::WorkerRules(WorkerId worker, const WorkerConfig& config,
                         const GroupCatalogue& catalogue, const Shown& shown)
    : id(worker),
      offload_rule(config.offload_rule.value_or(OffloadRule::kConnector)),
      rules(config.rules.value_or(shown.rules.value_or(EngineRules::kMain2026August))),
      unit(catalogue.unit()),
      alignment(catalogue.alignment()),
      groups(catalogue.Specs()),
      blocks_per_chunk(config.blocks_per_chunk),
      block_alignment(catalogue.unit() > 0 ? catalogue.block_alignment() : 0),
      replay_tokens(config.replay_tokens.value_or(0)),
      lookahead(std::max(config.hash_lookahead_tokens, shown.lookahead)),
      shortest_hit(shown.shortest_hit) {
  for (GroupSpec& group : groups) {
    const bool chunked = group.kind == SpecKind::kChunkedLocalAttention;
    has_chunks |= chunked;
    if (chunked && group.chunk_size == 0) group.chunk_size = config.chunk_size;
    if (config.groups.empty() && config.eagle) group.eagle = *config.eagle;
    // The hash of a block says what follows it, so that the block need not be dropped.
    if (lookahead > 0) group.eagle = false;
  }
  untold = UntoldOf(*this, config, catalogue, config.rules || shown.rules);
  untold_with_cpu = UntoldOfLoads(*this, config, config.rules || shown.rules);
  nothing_without_blocks = std::none_of(groups.begin(), groups.end(), [](const GroupSpec& spec) {
    return spec.kind == SpecKind::kChunkedLocalAttention && TakesPart(spec);
  });
  leading_run = !groups.empty() && unit > 0 && alignment > 0 && replay_tokens == 0 &&
                std::all_of(groups.begin(), groups.end(), [&](const GroupSpec& spec) {
                  return spec == groups[0] && IsFullKind(spec.kind) && TakesPart(spec) &&
                         !spec.eagle && spec.block_size == unit;
                });
}

}  // namespace kvcast::router
