// PolicyIndex: the index that answers the probes of a replay. Our index under each of its policies
// implements this interface, and so do the simpler structures of other routers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/router/prefix_index.h"

namespace kvcast::tools {

// The answer for one prompt.
struct Promise {
  int64_t tokens = -1;        // the predicted prefix; -1: no answer
  int64_t replay_tokens = 0;  // tokens of the prefix that are computed again
  // By group_idx, the tokens that each group could serve alone; empty: unknown.
  std::vector<int64_t> per_group;
};

Promise PromiseOf(const WorkerMatch& match);

// An index of one worker.
class PolicyIndex {
 public:
  virtual ~PolicyIndex() = default;
  // Returns the positions in the batch of the events that the index did not apply
  // (ApplyResult::left_out).
  virtual std::vector<size_t> Apply(const EventBatch& batch) = 0;
  virtual Promise Match(std::span<const BlockHash> chain, int64_t hash_block_size,
                        int64_t prompt_tokens) = 0;
  // All 0 if the policy has no counters.
  virtual IndexCounters counters() const { return {}; }
};

enum class Policy : uint8_t { kExact, kFullOnly, kAnyGroup, kGroupBlind, kMinOfMaxima };
inline constexpr std::array kPolicies = {Policy::kExact, Policy::kFullOnly, Policy::kAnyGroup,
                                         Policy::kGroupBlind, Policy::kMinOfMaxima};

// "exact", "full-only", "any-group", "group-blind", "min-of-maxima".
std::string_view PolicyName(Policy policy);
std::optional<Policy> ParsePolicy(std::string_view name);

// Not ok: the registration is refused.
Result<std::unique_ptr<PolicyIndex>> MakePolicyIndex(Policy policy,
                                                     const WorkerConfig& registration);

}  // namespace kvcast::tools
