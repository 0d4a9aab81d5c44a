// The configuration lines of recorded offload data: groups, and what the connector derives of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "kvcast/spec/offload_rules.h"

namespace kvcast::tools {

// `record` has the fields groups, tokens_per_hash, blocks_per_chunk, and maybe speculative_eagle
// and dcp. Throws what nlohmann throws, and std::runtime_error on an unknown value.
OffloadLayoutConfig ParseLayoutConfig(const nlohmann::json& record);
inline OffloadLayoutConfig AsInVllm(OffloadLayoutConfig config) {
  config.compatible = true;
  return config;
}
GroupSpec ParseOffloadGroup(const nlohmann::json& value);

// What is derived, in the form of the recordings.
nlohmann::json GroupsJson(const OffloadLayout& layout);
nlohmann::json LayoutJson(const OffloadLayout& layout);

}  // namespace kvcast::tools
