// Recorded payloads of the engine's host-memory events, written again by our event writer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/conformance/offload/offload_checks.h"

namespace kvcast::tools {

// The keys that changed, and what was known of them, are taken from the record; compared are all
// bytes of the payload. Throws as OffloadManagerReplay does.
void RunOffloadEvents(const nlohmann::json& record, OffloadChecks& checks);

}  // namespace kvcast::tools
