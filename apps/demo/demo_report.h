// What a demo prints at its end: tables for people, one JSON object for programs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "apps/demo/demo_run.h"

namespace kvcast::tools {

// Totals of the engines of each dialect over all runs, in the order of the engines; named by
// dialect.
std::vector<EngineResult> ResultsByDialect(const std::vector<RunResult>& runs);

// REQUIRES: runs.front() is the kvcast run. Tables go to stdout; with options.json to stderr, and
// the JSON object is the only line of stdout.
void PrintDemoReport(const DemoOptions& options, const std::vector<RunResult>& runs);

}  // namespace kvcast::tools
