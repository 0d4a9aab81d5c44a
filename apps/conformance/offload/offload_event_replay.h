// Recorded payloads of the engine's host-memory events. Our event writer writes them again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/conformance/offload/offload_checks.h"

namespace kvcast::tools {

// The changed keys and their known properties come from the record. All bytes of the payload are
// compared. Throws the exceptions of OffloadManagerReplay.
void RunOffloadEvents(const nlohmann::json& record, OffloadChecks& checks);

}  // namespace kvcast::tools
