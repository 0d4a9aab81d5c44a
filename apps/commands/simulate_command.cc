// `kvcast simulate`: compares selection rules in virtual time.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/commands/commands.h"
#include "apps/simulate/matrix.h"
#include "apps/simulate/simulate_report.h"
#include "apps/support/progress.h"

namespace kvcast::tools {

int RunSimulate(const simulate::SimulateOptions& options) {
  if (options.list_rules) {
    std::printf("%s", simulate::RenderRules().c_str());
    return 0;
  }
  if (!options.report.empty()) {
    const Status created = simulate::CreateReportFolder(options.report);
    if (!created.ok()) return Fail(created);
  }
  std::optional<Progress> progress;
  const auto matrix = simulate::RunMatrix(options, [&](size_t done, size_t total) {
    if (!progress) progress.emplace("kvcast simulate", static_cast<int64_t>(total));
    progress->Update(static_cast<int64_t>(done));
  });
  if (progress) progress->Finish();
  if (!matrix.ok()) return Fail(matrix.status());
  std::fprintf(options.json ? stderr : stdout, "%s", simulate::RenderTable(*matrix).c_str());
  if (options.json) std::printf("%s\n", simulate::RenderJson(*matrix).c_str());
  if (!options.report.empty()) {
    if (const Status written = simulate::WriteReport(options.report, *matrix); !written.ok()) {
      return Fail(written);
    }
  }
  // exact_checked counts the admissions at which the index had every batch of the engine. Each
  // difference is thus an error.
  const bool exact = std::ranges::all_of(matrix->runs, [](const simulate::MatrixRun& run) {
    return run.result.exact_equal == run.result.exact_checked;
  });
  return exact ? 0 : Fail("the index differs from an engine's own lookup");
}

}  // namespace kvcast::tools
