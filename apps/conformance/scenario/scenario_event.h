// Parses recorded events from their decoded form.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvcast/core/event.h"

namespace kvcast::tools {

// These functions throw nlohmann's exceptions if a field is missing or of the wrong type.
BlockHash ScenarioHash(const nlohmann::json& value);
Event ScenarioEvent(const nlohmann::json& value);
// Throws std::invalid_argument if `hex` does not consist of pairs of hex digits.
std::string HexToBytes(const std::string& hex);

}  // namespace kvcast::tools
