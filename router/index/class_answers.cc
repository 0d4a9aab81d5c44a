// SPDX-License-Identifier: Apache-2.0
#include "router/index/class_answers.h"

#include <algorithm>
#include <bit>

namespace kvcast::router {

void ClassAnswers::Begin(const HoldingClasses& classes, const QueryShape& shape,
                         std::span<const ContentKey> contents) {
  classes_ = &classes;
  shape_ = shape;
  contents_ = contents;
  answers_.clear();
  answer_of_.clear();
}

WorkerMatch ClassAnswers::Miss(const HoldingClasses::Root& root) const {
  WorkerMatch match;
  match.recompute_tokens = shape_.prompt_tokens;
  match.per_group_tokens.assign(root.rules->groups.size(), 0);
  match.certain = root.certain;
  match.unnamed_gpu = root.has_unnamed_gpu ? 1 : 0;
  match.has_unnamed = root.has_unnamed;
  // The other unknown properties only change the use of blocks, and these workers hold no block.
  match.unknown_with_cpu = root.rules->unknown_with_cpu & uint32_t(UnknownProperty::kOffloadRule);
  return match;
}

void ClassAnswers::Compute(ClassId id) {
  if (id >= answer_of_.size()) answer_of_.resize(id + size_t{1});
  const bool nothing = HoldNothing(id);
  if (!nothing) {
    held_.Read(*classes_, id, static_cast<size_t>(shape_.prompt_units), contents_);
  }
  const HoldingClasses::Root& root =
      nothing ? classes_->root(classes_->node(id).number) : held_.root();
  if (!HasHashBlockSize(*root.rules)) {
    answer_of_[id] = kOtherHashBlockSize;
    return;
  }
  answers_.push_back(nothing ? Miss(root) : WholeAnswer());
  answer_of_[id] = static_cast<uint32_t>(answers_.size());
}

WorkerMatch ClassAnswers::WholeAnswer() const {
  const WorkerRules& rules = held_.rules();
  WorkerMatch match = Answer();
  match.certain = held_.root().certain;
  match.unnamed_gpu = held_.root().has_unnamed_gpu ? 1 : 0;
  match.has_unnamed = held_.root().has_unnamed;
  match.ambiguous = held_.ambiguous();
  match.unnamed_units = held_.unnamed_units();
  match.unknown = Unknown(match);
  constexpr auto kRuleOnly = uint32_t(UnknownProperty::kOffloadRule);
  match.unknown_with_cpu |=
      (rules.unknown_with_cpu & ~kRuleOnly) == 0 ? rules.unknown_with_cpu : UnknownOfLoads(match);
  return match;
}

MatchPlan ClassAnswers::PlanOf(ClassId id) {
  held_.Read(*classes_, id, static_cast<size_t>(shape_.prompt_units), contents_);
  return Plan();
}

MatchPlan ClassAnswers::Plan() const {
  MatchPlan plan(held_.rules(), shape_);
  for (size_t i = 0; i < held_.parts(); ++i) {
    const HeldBlocks::Part part = held_.part(i);
    plan.Mark(part.group, part.tier, part.positions);
  }
  return plan;
}

WorkerMatch ClassAnswers::Answer() const {
  const WorkerRules& rules = held_.rules();
  if (held_.parts() == 0 && rules.nothing_without_blocks) return Miss(held_.root());
  WorkerMatch match;
  const bool leading = rules.leading_run && shape_.policy == MatchPolicy::kExact;
  return leading && LeadingRun(match) ? match : Plan().Evaluate();
}

// Computes the result of MatchPlan for workers with WorkerRules::leading_run. False: a lower tier
// holds a block, and `match` is not set.
bool ClassAnswers::LeadingRun(WorkerMatch& match) const {
  const WorkerRules& rules = held_.rules();
  int64_t run = held_.parts() < rules.groups.size() ? 0 : shape_.units;
  for (size_t i = 0; i < held_.parts(); ++i) {
    const HeldBlocks::Part part = held_.part(i);
    if (part.tier != Tier::kGpu) return false;
    const std::span<const uint64_t> words = part.positions;
    size_t w = 0;
    while (w < words.size() && words[w] == ~uint64_t{0}) ++w;
    const int ones = w < words.size() ? std::countr_one(words[w]) : 0;
    run = std::min(run, static_cast<int64_t>(w) * 64 + ones);
  }
  const int64_t tokens = run * rules.hash_block_size / rules.alignment * rules.alignment;
  const int64_t most = shape_.units * shape_.hash_block_size / rules.alignment * rules.alignment;
  match.gpu_tokens = match.with_cpu_tokens = match.with_storage_tokens = tokens;
  match.recompute_tokens = shape_.prompt_tokens - tokens;
  match.per_group_tokens.assign(rules.groups.size(), tokens);
  match.hit = tokens == 0 ? HitKind::kMiss : tokens == most ? HitKind::kFull : HitKind::kPartial;
  return true;
}

// Returns the unknown properties of the workers that could change the answer.
uint32_t ClassAnswers::Unknown(const WorkerMatch& match) const {
  const WorkerRules& rules = held_.rules();
  uint32_t unknown = rules.unknown;
  if (unknown == 0) return 0;
  // If the worker holds no block of the prompt, the answer is 0 tokens as soon as one group is
  // known to need blocks.
  if (held_.parts() == 0 && rules.nothing_without_blocks) return 0;
  const auto drop = [&unknown](UnknownProperty property) {
    unknown &= ~static_cast<uint32_t>(property);
  };
  // These properties can only shorten a hit. The exception is a prompt that ends with a hash unit:
  // an engine that drops a block also looks up that last unit.
  if (match.gpu_tokens == 0) {
    drop(UnknownProperty::kReplay);
    if (shape_.prompt_units == shape_.units && !rules.groups.empty()) {
      drop(UnknownProperty::kGroups);
      if (!rules.drops_in_some_group) drop(UnknownProperty::kEagle);
    }
  }
  if (rules.shortest_hit > 0 && match.gpu_tokens >= rules.shortest_hit)
    drop(UnknownProperty::kReplay);
  // Blocks of all groups end at multiples of hit_step.
  if (rules.hit_step > 0 && match.gpu_tokens % rules.hit_step == 0) drop(UnknownProperty::kGroups);
  // A group of unknown size is evaluated as if it needed every block. The answer can therefore only
  // be too small.
  if (match.hit == HitKind::kFull) {
    drop(UnknownProperty::kWindow);
    drop(UnknownProperty::kChunkSize);
  }
  // If a hit ends where blocks of all groups end, and the lookup drops no block, both possible
  // alignments give the same hit.
  const bool drops = std::any_of(rules.groups.begin(), rules.groups.end(),
                                 [](const GroupSpec& group) { return group.eagle; });
  const int64_t aligned = rules.block_alignment;
  if (!drops && (match.gpu_tokens == 0 || (aligned > 0 && match.gpu_tokens % aligned == 0))) {
    drop(UnknownProperty::kAlignment);
  }
  // The releases differ only for a prompt that ends with a hash unit.
  if (shape_.prompt_units == shape_.units) drop(UnknownProperty::kRelease);
  return unknown;
}

// Returns the unknown properties that could change the prefix that is served after loads. REQUIRES:
// match.unknown is set, and a property other than the offload rule is unknown.
uint32_t ClassAnswers::UnknownOfLoads(const WorkerMatch& match) const {
  const WorkerRules& rules = held_.rules();
  if (!rules.nothing_without_blocks) return rules.unknown_with_cpu;
  // If the workers hold no block of the prompt on the CPU tier, no rule loads a block.
  for (size_t i = 0; i < held_.parts(); ++i) {
    if (held_.part(i).tier == Tier::kCpu) return rules.unknown_with_cpu;
  }
  return match.unknown | (rules.unknown_with_cpu & uint32_t(UnknownProperty::kOffloadRule));
}

}  // namespace kvcast::router
