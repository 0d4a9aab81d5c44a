// `kvcast conformance KIND PATH...`.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/conformance/conformance.h"
#include "apps/dev/dev_commands.h"

namespace kvcast::tools {
namespace {

Status RunKind(const ConformanceOptions& options, ConformanceReport& report) {
  if (options.kind == "wire") return RunWireConformance(options.paths, report);
  if (options.kind == "frames") return RunFramesConformance(options.paths, report);
  if (options.kind == "hash") return RunHashConformance(options.paths, report);
  if (options.kind == "engine") return RunEngineConformance(options.paths, report);
  if (options.kind == "offload") {
    return RunOffloadConformance(options.paths, report, options.compatible);
  }
  if (options.kind == "router") {
    const std::string policy = options.table ? "all" : options.policy;
    return RunRouterConformance(
        options.paths,
        {policy, options.feed, options.seed, options.told, options.scheme, options.joins}, report);
  }
  return {StatusCode::kInvalidArgument, "unknown conformance class '" + options.kind + "'"};
}

void PrintTable(const std::vector<ConformanceReport::PolicyFigures>& policies) {
  std::printf("| policy | probes | exact | over-predicted tokens per probe | under-predicted |\n");
  std::printf("|---|--:|--:|--:|--:|\n");
  for (const auto& figures : policies) {
    std::printf("| %s | %llu | %.2f %% | %.2f | %.2f |\n", figures.policy.c_str(),
                static_cast<unsigned long long>(figures.probes), figures.exact_percent,
                figures.over_tokens_per_probe, figures.under_tokens_per_probe);
  }
}

nlohmann::json PoliciesJson(const std::vector<ConformanceReport::PolicyFigures>& policies) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& figures : policies) {
    list.push_back({{"policy", figures.policy},
                    {"probes", figures.probes},
                    {"exact_percent", figures.exact_percent},
                    {"over_predicted_tokens_per_probe", figures.over_tokens_per_probe},
                    {"under_predicted_tokens_per_probe", figures.under_tokens_per_probe}});
  }
  return list;
}

void PrintExactness(const ConformanceReport::ExactFigures& figures) {
  const auto print = [](uint64_t probes, const std::string& kind) {
    std::printf("%8llu answers %s\n", static_cast<unsigned long long>(probes), kind.c_str());
  };
  print(figures.exact, "exact");
  print(figures.exact_wrong, "exact and wrong");
  for (const auto& [reason, probes] : figures.not_exact) print(probes, "not exact: " + reason);
}

void PrintReport(const ConformanceReport& report, bool as_json) {
  for (const std::string& note : report.notes) std::printf("%s\n", note.c_str());
  if (as_json) {
    nlohmann::json object = {{"files", report.files},
                             {"compared", report.compared},
                             {"equal", report.equal},
                             {"unsupported", report.unsupported},
                             {"first_differences", report.first_differences}};
    if (!report.policies.empty()) object["policies"] = PoliciesJson(report.policies);
    if (report.exactness) {
      object["exact"] = report.exactness->exact;
      object["exact_wrong"] = report.exactness->exact_wrong;
      object["not_exact"] = report.exactness->not_exact;
      object["proven_not_exact"] = report.exactness->proven_not_exact;
      object["joined_not_equal"] = report.exactness->joined_not_equal;
      object["settled"] = {{"compared", report.exactness->settled},
                           {"equal", report.exactness->settled_equal},
                           {"exact", report.exactness->settled_exact}};
    }
    std::printf("%s\n", object.dump().c_str());
    return;
  }
  for (const std::string& difference : report.first_differences) {
    std::printf("differs: %s\n", difference.c_str());
  }
  if (!report.policies.empty()) PrintTable(report.policies);
  if (report.exactness) PrintExactness(*report.exactness);
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
