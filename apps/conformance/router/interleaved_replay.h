// Recorded runs as workers of one index, with their steps in random order. The events of one worker
// must not change the answers of another worker.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "apps/conformance/router/router_replay.h"
#include "apps/conformance/scenario/scenario_file.h"

namespace kvcast::tools {

// Called with the result of every check and the file of the check.
using FileCheck =
    std::function<void(const Scenario& file, bool equal, const std::string& difference)>;

// Every scenario becomes two workers, so that two workers hold the same hashes in different states.
// Each probe makes two checks. First, the answer for the worker of the probe must equal the
// recorded answer. Second, the answer for every other worker must equal the answer of an index that
// holds only this other worker. Adds the errors of the first check to `error`.
Status ReplayInterleaved(std::span<const Scenario> scenarios, uint64_t seed, const FileCheck& check,
                         PromiseError& error);

}  // namespace kvcast::tools
