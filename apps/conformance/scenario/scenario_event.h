// Recorded events, decoded form, as values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvcast/core/event.h"

namespace kvcast::tools {

// These throw what nlohmann throws on a missing or mistyped field.
BlockHash ScenarioHash(const nlohmann::json& value);
Event ScenarioEvent(const nlohmann::json& value);
std::string HexToBytes(const std::string& hex);

}  // namespace kvcast::tools
