// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/scenario/scenario_file.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "apps/support/file.h"
#include "apps/support/recording_paths.h"

namespace kvcast::tools {
namespace {

namespace fs = std::filesystem;

Status ParseLine(std::string_view line, Scenario& scenario) {
  if (IsScenarioFinal(line)) {
    Result<ScenarioFinal> last = ParseScenarioFinal(line);
    if (!last.ok()) return last.status();
    scenario.final_state = std::move(last).value();
    return Status();
  }
  Result<ScenarioStep> step = ParseScenarioStep(line);
  if (!step.ok()) return step.status();
  scenario.steps.push_back(std::move(step).value());
  return Status();
}

Status MalformedLine(const std::string& path, size_t line, const Status& error) {
  return {StatusCode::kMalformed, path + ":" + std::to_string(line) + ": " + error.message()};
}

Status AddFolder(const std::string& folder, std::vector<std::string>& files) {
  std::error_code error;
  const size_t before = files.size();
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) files.push_back(it->path());
  }
  if (error) return {StatusCode::kUnavailable, folder + ": " + error.message()};
  if (files.size() == before) return {StatusCode::kNotFound, folder + ": has no scenario"};
  std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end());
  return Status();
}

}  // namespace

Result<Scenario> ReadScenario(const std::string& path) {
  const auto content = ReadFile(path);
  if (!content.ok()) return content.status();
  const auto lines = SplitLines(*content);
  auto config = ParseScenarioConfig(lines.empty() ? "" : lines[0]);
  if (!config.ok()) return MalformedLine(path, 1, config.status());
  Scenario scenario;
  scenario.path = path;
  scenario.config = std::move(config).value();
  for (size_t i = 1; i < lines.size(); ++i) {
    const Status status = ParseLine(lines[i], scenario);
    if (!status.ok()) return MalformedLine(path, i + 1, status);
  }
  return scenario;
}

Result<std::vector<std::string>> ScenarioPaths(const std::vector<std::string>& paths) {
  return ExpandFolders(paths, AddFolder);
}

}  // namespace kvcast::tools
