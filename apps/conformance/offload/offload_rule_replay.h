// Compares recorded results of the small rules of the engine's offloading connector with the
// results of our rules.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/conformance/offload/offload_checks.h"
#include "kvcast/spec/offload_rules.h"

namespace kvcast::tools {

// `letter` is 'M', 'H', 'P' or 'R'.
LookupResult ParseAnswer(char letter);

void RunOffloadRule(const nlohmann::json& record, OffloadChecks& checks);
void RunOffloadScan(const nlohmann::json& record, OffloadChecks& checks);

}  // namespace kvcast::tools
