// The final report of a demo: tables for people, one JSON object for programs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "apps/demo/demo_policies.h"
#include "apps/demo/demo_run.h"

namespace kvcast::tools {

// Returns the totals of the engines by dialect. The name of an entry is that of the dialect. The
// entries are in the order in which the dialects first occur among the engines.
std::vector<EngineResult> ResultsByDialect(const RunResult& run);

// Both functions print to stdout, or to stderr with options.json.
void PrintPolicies(const DemoOptions& options, const PolicyComparison& comparison);
// With options.json, also prints the JSON object as the only line of stdout.
void PrintDemoReport(const DemoOptions& options, const PolicyComparison& comparison,
                     const RunResult& run);

}  // namespace kvcast::tools
