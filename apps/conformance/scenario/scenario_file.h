// Reads a scenario file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/conformance/scenario/scenario.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct Scenario {
  std::string path;
  ScenarioConfig config;
  std::vector<ScenarioStep> steps;
  std::optional<ScenarioFinal> final_state;  // nullopt: not recorded
};

// Errors name the path and the line.
Result<Scenario> ReadScenario(const std::string& path);

// Returns the paths of scenario files. The path of a file is returned unchanged. A folder is
// replaced by its .jsonl and .jsonl.gz files, ordered by name. Not ok: a folder cannot be read, or
// has no such file.
Result<std::vector<std::string>> ScenarioPaths(const std::vector<std::string>& paths);

}  // namespace kvcast::tools
