// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/tools/conformance.h"
#include "src/tools/file.h"
#include "src/tools/scenario.h"
#include "src/tools/scenario_replay.h"

namespace kvcast::tools {
namespace {

namespace fs = std::filesystem;

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
    replay.RunStep(*step);
  }
  return {};
}

Status CheckFile(const std::string& path, ConformanceReport& report) {
  const auto content = ReadFile(path);
  if (!content.ok()) return content.status();
  const auto lines = SplitLines(*content);
  const auto config = ParseScenarioConfig(lines.empty() ? "" : lines[0]);
  if (!config.ok()) return Malformed(path, 1, config.status());

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

bool IsScenarioFile(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".jsonl") || name.ends_with(".jsonl.gz");
}

Status CheckPath(const std::string& path, ConformanceReport& report) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return CheckFile(path, report);
  std::vector<std::string> files;
  for (fs::directory_iterator it(path, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    if (IsScenarioFile(it->path())) files.push_back(it->path().string());
  }
  if (error) return {StatusCode::kUnavailable, path + ": " + error.message()};
  if (files.empty()) return {StatusCode::kNotFound, path + ": holds no scenario"};
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    const Status status = CheckFile(file, report);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace

Status RunEngineConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  for (const std::string& path : paths) {
    const Status status = CheckPath(path, report);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace kvcast::tools
