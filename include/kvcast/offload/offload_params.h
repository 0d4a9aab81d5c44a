// OffloadParams: the options of a request for offloading, from vLLM's kv_transfer_params.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast {

// The tiers below host memory from which a request may load. A request may always load from host
// memory.
class TierFilter {
 public:
  // Matches a tier by its properties. A property that is nullopt matches every tier.
  struct Rule {
    std::optional<std::string> medium;    // "CPU" or "STORAGE"
    std::optional<std::string> locality;  // "LOCAL" or "REMOTE"
  };

  TierFilter() = default;  // all tiers
  explicit TierFilter(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  bool allows_all() const { return !rules_; }
  // True if a rule matches the tier, or if allows_all(). An empty list of rules allows no tier. A
  // property that the tier does not state matches every rule.
  bool Allows(std::optional<std::string_view> medium,
              std::optional<std::string_view> locality) const;

 private:
  std::optional<std::vector<Rule>> rules_;  // alternatives; nullopt: all tiers
};

// The parsed options.
struct OffloadParams {
  std::optional<int64_t> max_offload_tokens;  // leading tokens that may be stored; nullopt: all
  std::optional<int64_t> max_load_tokens;     // maximum number of loaded tokens; nullopt: no limit
  TierFilter load_tiers;
};

// Parses the object kv_transfer_params of a request. As in vLLM, an invalid value counts as absent.
// max_offload_tokens and max_load_tokens must be non-negative integers. kv_load_tiers must be an
// empty list, which forbids all tiers, or a list with at least one valid entry. Error: kMalformed
// if `json` is not a JSON object.
Result<OffloadParams> ParseOffloadParams(std::string_view json);

}  // namespace kvcast
