// `kvcast conformance KIND PATH...`.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/tools/commands.h"
#include "src/tools/conformance.h"

namespace kvcast::tools {
namespace {

Status RunKind(const ConformanceOptions& options, ConformanceReport& report) {
  if (options.kind == "wire") return RunWireConformance(options.paths, report);
  if (options.kind == "frames") return RunFramesConformance(options.paths, report);
  if (options.kind == "hash") return RunHashConformance(options.paths, report);
  if (options.kind == "engine") return RunEngineConformance(options.paths, report);
  if (options.kind == "router") return RunRouterConformance(options.paths, report);
  return {StatusCode::kInvalidArgument, "unknown conformance class '" + options.kind + "'"};
}

void PrintReport(const ConformanceReport& report, bool json) {
  if (json) {
    const nlohmann::json object = {{"files", report.files},
                                   {"compared", report.compared},
                                   {"equal", report.equal},
                                   {"unsupported", report.unsupported},
                                   {"first_differences", report.first_differences}};
    std::printf("%s\n", object.dump().c_str());
    return;
  }
  for (const std::string& difference : report.first_differences) {
    std::printf("differs: %s\n", difference.c_str());
  }
  std::printf("%llu files, %llu compared, %llu equal, %llu unsupported\n",
              static_cast<unsigned long long>(report.files),
              static_cast<unsigned long long>(report.compared),
              static_cast<unsigned long long>(report.equal),
              static_cast<unsigned long long>(report.unsupported));
}

}  // namespace

int RunConformance(const ConformanceOptions& options) {
  ConformanceReport report;
  const Status status = RunKind(options, report);
  if (!status.ok()) return Fail(status);
  PrintReport(report, options.json);
  if (report.compared == 0) return Fail("nothing to compare in the given paths");
  return report.ok() ? 0 : 1;
}

}  // namespace kvcast::tools
