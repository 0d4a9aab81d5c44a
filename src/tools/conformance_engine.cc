// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/tools/conformance.h"
#include "src/tools/file.h"
#include "src/tools/scenario.h"
#include "src/tools/scenario_file.h"
#include "src/tools/scenario_replay.h"

namespace kvcast::tools {
namespace {

Status Malformed(const std::string& path, size_t line, const Status& why) {
  return {StatusCode::kMalformed, path + ":" + std::to_string(line) + ": " + why.message()};
}

Status ReplayLines(const std::string& path, const std::vector<std::string_view>& lines,
                   ScenarioReplay& replay) {
  for (size_t i = 1; i < lines.size(); ++i) {
    if (IsScenarioFinal(lines[i])) {
      const auto last = ParseScenarioFinal(lines[i]);
      if (!last.ok()) return Malformed(path, i + 1, last.status());
      replay.CheckFinal(*last);
      continue;
    }
    const auto step = ParseScenarioStep(lines[i]);
    if (!step.ok()) return Malformed(path, i + 1, step.status());
    if (!replay.RunStep(*step)) return {};
  }
  return {};
}

// Recorded with asynchronous scheduling: a second batch is scheduled while the first one runs.
bool IsAsynchronous(const std::vector<std::string_view>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](std::string_view line) {
    return line.find(R"("op":"cache")") != std::string_view::npos;
  });
}

Status CheckFile(const std::string& path, ConformanceReport& report) {
  const auto content = ReadFile(path);
  if (!content.ok()) return content.status();
  const auto lines = SplitLines(*content);
  auto config = ParseScenarioConfig(lines.empty() ? "" : lines[0]);
  if (!config.ok()) return Malformed(path, 1, config.status());
  if (IsAsynchronous(lines)) config->cache.max_in_flight_tokens *= 2;

  bool differs = false;
  auto replay = ScenarioReplay::Create(*config, [&](bool equal, const std::string& what) {
    ++report.compared;
    if (equal) {
      ++report.equal;
    } else if (!std::exchange(differs, true)) {
      report.first_differences.push_back(path + ": " + what);
    }
  });
  if (!replay.ok()) return Malformed(path, 1, replay.status());
  ++report.files;
  return ReplayLines(path, lines, *replay);
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
