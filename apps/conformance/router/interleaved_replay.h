// Recorded runs as workers of one index, their steps in random order: what one worker does must
// not show in the answer of another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "apps/conformance/router/router_replay.h"
#include "apps/conformance/scenario/scenario_file.h"

namespace kvcast::tools {

// Told the outcome of every check with the file it belongs to.
using FileCheck =
    std::function<void(const Scenario& file, bool equal, const std::string& difference)>;

// Every scenario becomes two workers, so that two of them hold the same hashes in different states.
// Each probe makes two checks: the worker's own answer is what was recorded, and the answer of
// every other worker to the same prompt is that of an index which holds that worker alone.
// Adds the errors of the own answers to `error`.
Status ReplayInterleaved(std::span<const Scenario> scenarios, uint64_t seed, const FileCheck& check,
                         PromiseError& error);

}  // namespace kvcast::tools
