// The final report of a demo: tables for people, one JSON object for programs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "apps/demo/demo_run.h"

namespace kvcast::tools {

// Returns the totals of the engines by dialect over all runs. An entry has the name of its dialect.
// The entries are in the order in which the dialects first occur among the engines.
std::vector<EngineResult> ResultsByDialect(const std::vector<RunResult>& runs);

// REQUIRES: runs.front() is the kvcast run. Prints the tables to stdout. With options.json, prints
// the tables to stderr and the JSON object as the only line of stdout.
void PrintDemoReport(const DemoOptions& options, const std::vector<RunResult>& runs);

}  // namespace kvcast::tools
