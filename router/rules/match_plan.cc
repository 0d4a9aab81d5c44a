// SPDX-License-Identifier: Apache-2.0
#include "router/rules/match_plan.h"

#include <algorithm>
#include <bit>

#include "router/rules/baseline_policies.h"
#include "router/rules/limiting_group.h"

namespace kvcast::router {
namespace {

bool IsAsked(const GroupSpec& spec, MatchPolicy policy) {
  return TakesPart(spec) && (policy != MatchPolicy::kFullOnly || IsFullKind(spec.kind));
}

int64_t EagleUnits(const WorkerRules& worker, const QueryShape& shape) {
  if (shape.policy != MatchPolicy::kExact) return shape.units;
  return EagleLimit(worker.rules, worker.groups.size(), shape.units, shape.prompt_units);
}

// True if the events did not give the window or chunk size. The group is then evaluated as if it
// needed every block: the prediction may be too small, but never too large.
bool SizeUnknown(const GroupSpec& spec) {
  return (IsWindowKind(spec.kind) && spec.sliding_window == 0) ||
         (spec.kind == SpecKind::kChunkedLocalAttention && spec.chunk_size == 0);
}

}  // namespace

MatchPlan::MatchPlan(const WorkerRules& worker, const QueryShape& shape)
    : shape_(shape), worker_(&worker), eagle_units_(EagleUnits(worker, shape)) {
  part_of_group_.assign(worker.groups.size(), -1);
  for (size_t i = 0; i < worker.groups.size(); ++i) {
    const GroupSpec& spec = worker.groups[i];
    if (!IsAsked(spec, shape.policy)) continue;
    part_of_group_[i] = static_cast<int>(parts_.size());
    full_kinds_only_ = full_kinds_only_ && IsFullKind(spec.kind);
    AddGroup(spec);
  }
}

void MatchPlan::AddGroup(GroupSpec spec) {
  if (SizeUnknown(spec)) spec.kind = SpecKind::kFullAttention;
  GroupResidency& part = parts_.emplace_back();
  part.spec = spec;
  part.blocks.Resize(eagle_units_ * shape_.hash_block_size / spec.block_size);
  const bool partial = spec.block_size > shape_.hash_block_size;
  if (partial) part.partial_ends.Resize(eagle_units_);
}

void MatchPlan::Mark(uint8_t group, Tier tier, std::span<const uint64_t> positions) {
  if (group >= part_of_group_.size() || part_of_group_[group] < 0) return;
  const auto part = static_cast<size_t>(part_of_group_[group]);
  for (size_t w = 0; w < positions.size(); ++w) {
    for (uint64_t rest = positions[w]; rest != 0; rest &= rest - 1) {
      MarkOne(part, tier, static_cast<int64_t>(w) * 64 + std::countr_zero(rest));
    }
  }
}

void MatchPlan::MarkOne(size_t part_index, Tier tier, int64_t position) {
  GroupResidency& part = parts_[part_index];
  const int64_t units_per_block = part.spec.block_size / shape_.hash_block_size;
  const int64_t end = position + 1;
  const bool ends_block = end % units_per_block == 0;
  if (tier != Tier::kGpu) {
    MarkOffloaded(part_index, tier, position);
    return;
  }
  if (position >= eagle_units_) return;
  if (ends_block) {
    part.blocks.Set(end / units_per_block - 1);
  } else if (position < part.partial_ends.size()) {
    part.partial_ends.Set(position);
  }
}

void MatchPlan::MarkOffloaded(size_t part, Tier tier, int64_t position) {
  if (on_any_lower_.empty()) {
    for (const GroupResidency& group : parts_) {
      GroupResidency& held = on_any_lower_.emplace_back();
      held.spec = group.spec;
      held.blocks.Resize(shape_.prompt_units * shape_.hash_block_size / group.spec.block_size);
      if (group.spec.block_size > shape_.hash_block_size)
        held.partial_ends.Resize(shape_.prompt_units);
    }
    on_cpu_ = on_any_lower_;
  }
  const int64_t units_per_block = parts_[part].spec.block_size / shape_.hash_block_size;
  const auto set = [&](GroupResidency& held) {
    if ((position + 1) % units_per_block == 0) {
      held.blocks.Set((position + 1) / units_per_block - 1);
    } else {
      held.partial_ends.Set(position);
    }
  };
  set(on_any_lower_[part]);
  if (tier == Tier::kCpu) set(on_cpu_[part]);
}

OffloadReuse MatchPlan::WithOffload(std::span<const GroupResidency> held,
                                    int64_t local_tokens) const {
  if (held.empty()) return {local_tokens};
  if (worker_->offload_rule == OffloadRule::kMirroredPool) {
    // The pool copies whole blocks, so hits end where blocks of all groups end.
    const int64_t blocks = worker_->block_alignment;
    const bool by_blocks = blocks > 0 && worker_->alignment % blocks != 0;
    return {ReusableWithMirroredPool(held, {.hash_block_size = shape_.hash_block_size,
                                            .units = shape_.prompt_units,
                                            .alignment = by_blocks ? blocks : worker_->alignment,
                                            .num_groups = worker_->groups.size(),
                                            .prompt_tokens = shape_.prompt_tokens,
                                            .local_tokens = local_tokens,
                                            .rules = worker_->rules})};
  }
  return ReusableWithOffload(held, {.hash_block_size = shape_.hash_block_size,
                                    .units = shape_.prompt_units,
                                    .prompt_tokens = shape_.prompt_tokens,
                                    .local_tokens = local_tokens,
                                    .blocks_per_chunk = worker_->blocks_per_chunk,
                                    .full_kinds_only = full_kinds_only_,
                                    .compatible = worker_->offload_rule == OffloadRule::kConnector,
                                    .rules = worker_->rules});
}

// Sets the hit kind. For a partial hit or a miss, also sets the limiting group.
void MatchPlan::Judge(const Reuse& reuse, WorkerMatch& match) const {
  const int64_t max_tokens = shape_.units * shape_.hash_block_size;
  const int64_t most = max_tokens / worker_->alignment * worker_->alignment;
  if (match.gpu_tokens == 0) {
    match.hit = HitKind::kMiss;
  } else {
    match.hit = match.gpu_tokens == most ? HitKind::kFull : HitKind::kPartial;
  }
  if (match.hit == HitKind::kFull) return;
  const auto part = LimitingGroup(parts_, reuse, shape_.hash_block_size, worker_->alignment,
                                  max_tokens, eagle_units_ * shape_.hash_block_size);
  if (!part) return;
  match.limiting_group = static_cast<int64_t>(group_of(*part));
}

// The prefix that the policy predicts.
int64_t MatchPlan::PredictedTokens(const Reuse& reuse) const {
  switch (shape_.policy) {
    case MatchPolicy::kFullOnly:
      return ShortestLeadingTokens(parts_);
    case MatchPolicy::kAnyGroup:
      return AnyGroupTokens(parts_, shape_.hash_block_size, shape_.units);
    case MatchPolicy::kMinOfMaxima:
      return *std::min_element(reuse.per_group_tokens.begin(), reuse.per_group_tokens.end());
    case MatchPolicy::kExact:
      break;
  }
  return reuse.tokens;
}

// A hit that the engine computes again completely does not count.
void MatchPlan::Replay(WorkerMatch& match) const {
  if (match.gpu_tokens <= worker_->replay_tokens) match.gpu_tokens = 0;
  match.replay_tokens = std::min(match.gpu_tokens, worker_->replay_tokens);
}

WorkerMatch MatchPlan::Evaluate() const {
  WorkerMatch match;
  match.recompute_tokens = shape_.prompt_tokens;
  match.per_group_tokens.assign(part_of_group_.size(), 0);
  // Without cacheable groups the match is 0. An AND over no groups would give a hit of all units.
  if (parts_.empty()) return match;
  const Reuse reuse =
      ReusablePrefix(parts_, shape_.hash_block_size, worker_->alignment,
                     shape_.units * shape_.hash_block_size, eagle_units_ * shape_.hash_block_size);
  match.gpu_tokens = PredictedTokens(reuse);
  if (shape_.policy == MatchPolicy::kExact) Replay(match);
  match.recompute_tokens = shape_.prompt_tokens - match.gpu_tokens + match.replay_tokens;
  for (size_t i = 0; i < part_of_group_.size(); ++i) {
    if (part_of_group_[i] < 0) continue;
    match.per_group_tokens[i] = reuse.per_group_tokens[static_cast<size_t>(part_of_group_[i])];
  }
  match.with_cpu_tokens = match.with_storage_tokens = match.gpu_tokens;
  if (shape_.policy != MatchPolicy::kExact) return match;
  const OffloadReuse with_cpu = WithOffload(on_cpu_, match.gpu_tokens);
  match.with_cpu_tokens = with_cpu.tokens;
  if (!with_cpu.certain) match.unknown_with_cpu = static_cast<uint32_t>(UnknownProperty::kLoadEnd);
  match.with_storage_tokens = WithOffload(on_any_lower_, match.gpu_tokens).tokens;
  Judge(reuse, match);
  return match;
}

}  // namespace kvcast::router
