// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "apps/conformance/conformance.h"
#include "apps/conformance/engine/scenario_replay.h"
#include "apps/conformance/scenario/scenario_file.h"

namespace kvcast::tools {
namespace {

void ReplayAll(const Scenario& scenario, ScenarioReplay& replay) {
  for (const ScenarioStep& step : scenario.steps) {
    if (!replay.RunStep(step)) return;
  }
  if (scenario.final_state) replay.CheckFinal(*scenario.final_state);
}

// True: the run used asynchronous scheduling, which schedules the next step while the current step
// runs.
bool IsAsynchronous(const Scenario& scenario) {
  return std::any_of(scenario.steps.begin(), scenario.steps.end(), [](const ScenarioStep& step) {
    return std::any_of(step.ops.begin(), step.ops.end(),
                       [](const ScenarioOp& op) { return op.kind == OpKind::kCache; });
  });
}

Status CheckFile(const std::string& path, ConformanceReport& report) {
  auto scenario = ReadScenario(path);
  if (!scenario.ok()) return scenario.status();
  ++report.files;
  ScenarioConfig& config = scenario->config;
  if (!config.has_max_in_flight_tokens && IsAsynchronous(*scenario))
    config.cache.max_in_flight_tokens *= 2;

  bool differs = false;
  auto replay = ScenarioReplay::Create(config, [&](bool equal, const std::string& difference) {
    ++report.compared;
    if (equal) {
      ++report.equal;
    } else if (!std::exchange(differs, true)) {
      report.first_differences.push_back(path + ": " + difference);
    }
  });
  if (!replay.ok()) {
    return {StatusCode::kMalformed, path + ":1: " + replay.status().message()};
  }
  ReplayAll(*scenario, *replay);
  return {};
}

}  // namespace

Status RunEngineConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  const auto files = ScenarioPaths(paths);
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    if (const Status status = CheckFile(file, report); !status.ok()) return status;
  }
  return {};
}

}  // namespace kvcast::tools
