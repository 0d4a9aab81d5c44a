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

#include "kvcast/prefix_index.h"

namespace kvcast::tools {

// An index of one worker.
class PolicyIndex {
 public:
  virtual ~PolicyIndex() = default;
  // Gives back what PrefixIndex::Apply does; nothing where nothing is left out.
  virtual std::vector<size_t> Apply(const EventBatch& batch) = 0;
  // The prefix promised; -1: no answer.
  virtual int64_t Match(std::span<const BlockHash> chain, int64_t unit, int64_t prompt_tokens) = 0;
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
