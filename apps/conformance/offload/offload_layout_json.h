// The configuration lines of recorded offload data: the groups, and the layout that the connector
// derives from them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "kvcast/spec/offload_rules.h"

namespace kvcast::tools {

// `record` has the fields groups, tokens_per_hash, blocks_per_chunk, and optionally
// speculative_eagle, use_eagle and dcp. Throws nlohmann's exceptions, and std::runtime_error for an
// unknown value.
OffloadLayoutConfig ParseLayoutConfig(const nlohmann::json& record);
inline OffloadLayoutConfig AsInVllm(OffloadLayoutConfig config) {
  config.compatible = true;
  return config;
}
GroupSpec ParseOffloadGroup(const nlohmann::json& value);

// The derived layout, in the form of the recordings.
nlohmann::json GroupsJson(const OffloadLayout& layout);
nlohmann::json LayoutJson(const OffloadLayout& layout);

}  // namespace kvcast::tools
