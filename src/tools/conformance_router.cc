// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/tools/conformance.h"
#include "src/tools/file.h"
#include "src/tools/router_replay.h"

namespace kvcast::tools {
namespace {

namespace fs = std::filesystem;

Status Malformed(const std::string& path, size_t line, const Status& why) {
  return {StatusCode::kMalformed, path + ":" + std::to_string(line) + ": " + why.message()};
}

Status ReplayLines(const std::string& path, const std::vector<std::string_view>& lines,
                   RouterReplay& replay) {
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
  const auto registration = RegistrationOf(*config);
  if (!registration.ok()) return Malformed(path, 1, registration.status());

  bool differs = false;
  auto replay =
      RouterReplay::Create(*config, *registration, [&](bool equal, const std::string& what) {
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

Status CheckPath(const std::string& path, ConformanceReport& report) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return CheckFile(path, report);
  std::vector<std::string> files;
  for (fs::directory_iterator it(path, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) files.push_back(it->path());
  }
  if (error) return {StatusCode::kUnavailable, path + ": " + error.message()};
  if (files.empty()) return {StatusCode::kNotFound, path + ": holds no scenario"};
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    if (const Status status = CheckFile(file, report); !status.ok()) return status;
  }
  return {};
}

}  // namespace

Status RunRouterConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  for (const std::string& path : paths) {
    if (const Status status = CheckPath(path, report); !status.ok()) return status;
  }
  return {};
}

}  // namespace kvcast::tools
