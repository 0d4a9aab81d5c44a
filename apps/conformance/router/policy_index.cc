// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/policy_index.h"

#include <algorithm>

#include "apps/conformance/router/group_blind_index.h"

namespace kvcast::tools {
namespace {

constexpr WorkerId kWorker{0};
constexpr std::array<std::string_view, kPolicies.size()> kNames = {
    "exact", "full-only", "any-group", "group-blind", "min-of-maxima"};

// A PrefixIndex with one worker.
class OneWorkerIndex : public PolicyIndex {
 public:
  explicit OneWorkerIndex(MatchPolicy policy) : policy_(policy) {}

  Status Register(const WorkerConfig& registration) {
    return index_.AddWorker(kWorker, registration);
  }
  std::vector<size_t> Apply(const EventBatch& batch) override {
    return index_.Apply(kWorker, batch).left_out;
  }
  Promise Match(std::span<const BlockHash> chain, int64_t hash_block_size,
                int64_t prompt_tokens) override {
    const auto matches = index_.Match(chain, hash_block_size, prompt_tokens, {}, policy_);
    if (matches.empty()) return {};
    if (policy_ == MatchPolicy::kExact) return PromiseOf(matches[0]);
    return {.tokens = matches[0].gpu_tokens};
  }
  IndexCounters counters() const override { return index_.counters(kWorker); }

 private:
  MatchPolicy policy_;
  PrefixIndex index_;
};

MatchPolicy MatchPolicyOf(Policy policy) {
  switch (policy) {
    case Policy::kFullOnly:
      return MatchPolicy::kFullOnly;
    case Policy::kAnyGroup:
      return MatchPolicy::kAnyGroup;
    case Policy::kMinOfMaxima:
      return MatchPolicy::kMinOfMaxima;
    case Policy::kExact:
    case Policy::kGroupBlind:
      break;
  }
  return MatchPolicy::kExact;
}

}  // namespace

Promise PromiseOf(const WorkerMatch& match) {
  return {match.gpu_tokens,
          match.replay_tokens,
          {match.per_group_tokens.begin(), match.per_group_tokens.end()}};
}

std::string_view PolicyName(Policy policy) { return kNames[static_cast<size_t>(policy)]; }

std::optional<Policy> ParsePolicy(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return kPolicies[static_cast<size_t>(found - kNames.begin())];
}

Result<std::unique_ptr<PolicyIndex>> MakePolicyIndex(Policy policy,
                                                     const WorkerConfig& registration) {
  if (policy == Policy::kGroupBlind) {
    return std::unique_ptr<PolicyIndex>(std::make_unique<GroupBlindIndex>(registration.groups));
  }
  auto index = std::make_unique<OneWorkerIndex>(MatchPolicyOf(policy));
  if (Status status = index->Register(registration); !status.ok()) return status;
  return std::unique_ptr<PolicyIndex>(std::move(index));
}

}  // namespace kvcast::tools
