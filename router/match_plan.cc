// SPDX-License-Identifier: Apache-2.0
#include "router/match_plan.h"

#include <algorithm>

#include "router/field_policies.h"

namespace kvcast::router {
namespace {

bool TakesPart(const GroupSpec& spec, MatchPolicy policy) {
  return policy == MatchPolicy::kFullOnly ? IsFullKind(spec.kind) : IsCacheableKind(spec.kind);
}

// A window or chunk that the events did not give: to ask for every block promises too little, never
// too much.
bool SizeUnknown(const GroupSpec& spec) {
  return (IsWindowKind(spec.kind) && spec.sliding_window == 0) ||
         (spec.kind == SpecKind::kChunkedLocalAttention && spec.chunk_size == 0);
}

}  // namespace

MatchPlan::MatchPlan(WorkerId worker, const GroupCatalogue& catalogue, const QueryShape& shape)
    : shape_(shape), worker_(worker), alignment_(catalogue.alignment()) {
  const std::vector<GroupSpec> specs = catalogue.Specs();
  part_of_group_.assign(specs.size(), -1);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!TakesPart(specs[i], shape.policy)) continue;
    part_of_group_[i] = static_cast<int>(parts_.size());
    AddGroup(specs[i]);
  }
}

void MatchPlan::AddGroup(GroupSpec spec) {
  if (SizeUnknown(spec)) spec.kind = SpecKind::kFullAttention;
  GroupResidency& part = parts_.emplace_back();
  part.spec = spec;
  part.blocks.Resize(shape_.units * shape_.unit / spec.block_size);
  const bool partial = spec.block_size > shape_.unit;
  if (partial) part.partial_ends.Resize(shape_.units);
}

void MatchPlan::Mark(uint8_t group, int64_t position) {
  if (group >= part_of_group_.size() || part_of_group_[group] < 0) return;
  GroupResidency& part = parts_[static_cast<size_t>(part_of_group_[group])];
  const int64_t units_per_block = part.spec.block_size / shape_.unit;
  const int64_t end = position + 1;
  if (end % units_per_block == 0) {
    part.blocks.Set(end / units_per_block - 1);
  } else if (position < part.partial_ends.size()) {
    part.partial_ends.Set(position);
  }
}

// The prefix that the policy would promise.
int64_t MatchPlan::Promise(const Reuse& reuse) const {
  switch (shape_.policy) {
    case MatchPolicy::kFullOnly:
      return ShortestLeadingTokens(parts_);
    case MatchPolicy::kAnyGroup:
      return AnyGroupTokens(parts_, shape_.unit, shape_.units);
    case MatchPolicy::kMinOfMaxima:
      return *std::min_element(reuse.per_group_tokens.begin(), reuse.per_group_tokens.end());
    case MatchPolicy::kExact:
      break;
  }
  return reuse.tokens;
}

WorkerMatch MatchPlan::Evaluate() const {
  WorkerMatch match;
  match.worker = worker_;
  match.certain = certain_;
  match.per_group_tokens.assign(part_of_group_.size(), 0);
  // No group to ask is no promise, not the empty AND.
  if (parts_.empty()) return match;
  const Reuse reuse = ReusablePrefix(parts_, shape_.unit, alignment_, shape_.units * shape_.unit);
  match.gpu_tokens = Promise(reuse);
  for (size_t i = 0; i < part_of_group_.size(); ++i) {
    if (part_of_group_[i] < 0) continue;
    match.per_group_tokens[i] = reuse.per_group_tokens[static_cast<size_t>(part_of_group_[i])];
  }
  return match;
}

}  // namespace kvcast::router
