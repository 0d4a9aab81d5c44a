// What a request may say about offloading, in vLLM's kv_transfer_params.
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

// The tiers behind host memory that a request may be loaded from. Host memory itself is always one.
class TierFilter {
 public:
  // A member that is absent fits anything.
  struct Rule {
    std::optional<std::string> medium;    // "CPU", "STORAGE"
    std::optional<std::string> locality;  // "LOCAL", "REMOTE"
  };

  TierFilter() = default;  // all tiers
  explicit TierFilter(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  bool allows_all() const { return !rules_; }
  // What a tier does not say of itself fits any rule.
  bool Allows(std::optional<std::string_view> medium,
              std::optional<std::string_view> locality) const;

 private:
  std::optional<std::vector<Rule>> rules_;  // any of them
};

struct OffloadParams {
  std::optional<int64_t> max_offload_tokens;  // leading tokens that may be stored; nullopt: all
  std::optional<int64_t> max_load_tokens;     // that are loaded; nullopt: all
  TierFilter load_tiers;
};

// `json`: the object kv_transfer_params of a request. As in vLLM a value that makes no sense counts
// as absent: max_offload_tokens and max_load_tokens have to be integers that are not negative,
// kv_load_tiers a list
// with at least one sound entry, or an empty one, which forbids all. kMalformed: not a JSON object.
Result<OffloadParams> ParseOffloadParams(std::string_view json);

}  // namespace kvcast
