// A scenario read whole.
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
  std::optional<ScenarioFinal> final_state;
};

// Errors name the path and the line.
Result<Scenario> ReadScenario(const std::string& path);

// The scenarios among `paths`: files as they are, of folders the .jsonl and .jsonl.gz files in
// order of name. Not ok: a folder that cannot be read or holds none.
Result<std::vector<std::string>> ScenarioPaths(const std::vector<std::string>& paths);

}  // namespace kvcast::tools
