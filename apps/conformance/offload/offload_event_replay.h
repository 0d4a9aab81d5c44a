// Compares the recorded payloads of the engine's host-memory events with the payloads of our event
// writer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/conformance/offload/offload_checks.h"

namespace kvcast::tools {

// The changed keys and their known properties come from the record. All bytes of the payload are
// compared. Throws the exceptions of OffloadManagerReplay.
void RunOffloadEvents(const nlohmann::json& record, OffloadChecks& checks);

}  // namespace kvcast::tools
