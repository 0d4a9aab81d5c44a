// PolicyIndex: what answers the probes of a replay. One interface over our index under each of its
// policies, and over what routers in the field keep instead of it.
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
  int64_t tokens = -1;        // the prefix promised; -1: no answer
  int64_t replay_tokens = 0;  // of them, computed again
  // By group_idx, what each could serve without the others; empty: not said.
  std::vector<int64_t> per_group;
};

Promise PromiseOf(const WorkerMatch& match);

// An index of one worker.
class PolicyIndex {
 public:
  virtual ~PolicyIndex() = default;
  // Gives back what PrefixIndex::Apply does; nothing where nothing is left out.
  virtual std::vector<size_t> Apply(const EventBatch& batch) = 0;
  virtual Promise Match(std::span<const BlockHash> chain, int64_t unit, int64_t prompt_tokens) = 0;
  // All 0 where it counts nothing.
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
