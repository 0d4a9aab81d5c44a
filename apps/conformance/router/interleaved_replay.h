// Recorded runs as workers of one index, with their steps in random order. The events of one worker
// must not change the answer of another.
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
// Each probe makes two checks. First, the worker's own answer must equal the recorded one. Second,
// the answer of every other worker to the same prompt must equal that of an index which holds only
// that worker. Adds the errors of the own answers to `error`.
Status ReplayInterleaved(std::span<const Scenario> scenarios, uint64_t seed, const FileCheck& check,
                         PromiseError& error);

}  // namespace kvcast::tools
