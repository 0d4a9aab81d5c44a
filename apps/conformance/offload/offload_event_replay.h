// Compares the recorded payloads of the engine's host-memory events with the payloads of our event
// writer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/conformance/offload/offload_checks.h"

namespace kvcast::tools {

// Encodes the events of the stored and removed keys of the record, with the hashes, parents, tokens
// and LoRA of the record. Compares all bytes of the payload. Throws nlohmann's exceptions if a
// field is absent or has the wrong type, std::runtime_error for an impossible value, and
// std::out_of_range for a group index above 255.
void RunOffloadEvents(const nlohmann::json& record, OffloadChecks& checks);

}  // namespace kvcast::tools
