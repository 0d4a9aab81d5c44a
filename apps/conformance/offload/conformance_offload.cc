// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "apps/conformance/conformance.h"
#include "apps/conformance/offload/offload_checks.h"
#include "apps/conformance/offload/offload_event_replay.h"
#include "apps/conformance/offload/offload_lookup_replay.h"
#include "apps/conformance/offload/offload_manager_replay.h"
#include "apps/conformance/offload/offload_run_replay.h"
#include "apps/conformance/offload/simple_offload_replay.h"
#include "apps/support/file.h"
#include "apps/support/recording_paths.h"

namespace kvcast::tools {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

// The folder of recordings that show defects of the engine. Its recordings are run only if their
// path is given.
constexpr char kKnownDefects[] = "known-defects";

bool IsRecording(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".jsonl") || name.ends_with(".jsonl.gz");
}

Status AddFolder(const std::string& folder, std::vector<std::string>& files) {
  std::error_code error;
  const size_t before = files.size();
  for (fs::recursive_directory_iterator it(folder, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->path().filename() == kKnownDefects) it.disable_recursion_pending();
    if (IsRecording(it->path())) files.push_back(it->path());
  }
  if (error) return {StatusCode::kUnavailable, folder + ": " + error.message()};
  if (files.size() == before) return {StatusCode::kNotFound, folder + ": has no recording"};
  std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end());
  return Status();
}

bool IsConfig(const Json& record) { return record.value("record", "") == "config"; }

// Some replays need the order of the members of a record. Json::parse loses this order, so these
// replays get the text of the line.
template <typename Replay>
void ReplayLines(Replay& replay, const std::vector<std::string_view>& lines, size_t& line,
                 OffloadChecks& checks) {
  for (line = 1; line < lines.size(); ++line) {
    checks.set_line(line + 1);
    if constexpr (std::is_same_v<decltype(&Replay::Run), void (Replay::*)(std::string_view)>) {
      replay.Run(lines[line]);
    } else {
      replay.Run(Json::parse(lines[line]));
    }
  }
}

// The first two records of a file determine its kind.
void CheckLines(const std::vector<std::string_view>& lines, bool compatible, size_t& line,
                OffloadChecks& checks) {
  const Json first = Json::parse(lines.at(0));
  if (IsConfig(first) && first.contains("max_tracker_size") && first.contains("keys")) {
    OffloadManagerReplay replay(first, compatible, checks);
    return ReplayLines(replay, lines, line, checks);
  }
  if (IsConfig(first) && first.contains("cpu_slots")) {
    OffloadRunReplay replay(first, compatible, checks);
    return ReplayLines(replay, lines, line, checks);
  }
  if (first.contains("event_encoding")) {
    for (line = 0; line < lines.size(); ++line) {
      checks.set_line(line + 1);
      RunOffloadEvents(Json::parse(lines[line]), checks);
    }
    return;
  }
  if (IsConfig(first) && first.contains("num_cpu_blocks")) {
    SimpleOffloadReplay replay(first, compatible, checks);
    return ReplayLines(replay, lines, line, checks);
  }
  const Json second = lines.size() > 1 ? Json::parse(lines[1]) : Json::object();
  if (second.contains("rule") || second.contains("scan") || second.contains("cfg")) {
    OffloadLookupReplay replay(checks);
    return ReplayLines(replay, lines, line, checks);
  }
  for (size_t i = IsConfig(first) ? 1 : 0; i < lines.size(); ++i) checks.Unsupported();
}

Status CheckFile(const std::string& path, bool compatible, ConformanceReport& report) {
  const auto content = ReadFile(path);
  if (!content.ok()) return content.status();
  const auto lines = SplitLines(*content);
  if (lines.empty()) return {StatusCode::kMalformed, path + ": is empty"};
  ++report.files;
  OffloadChecks checks(path, report);
  size_t line = 0;
  try {
    CheckLines(lines, compatible, line, checks);
  } catch (const std::exception& error) {
    return {StatusCode::kMalformed, path + ":" + std::to_string(line + 1) + ": " + error.what()};
  }
  return Status();
}

}  // namespace

Status RunOffloadConformance(const std::vector<std::string>& paths, ConformanceReport& report,
                             bool compatible) {
  const auto files = ExpandFolders(paths, AddFolder);
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    if (Status status = CheckFile(file, compatible, report); !status.ok()) return status;
  }
  return Status();
}

}  // namespace kvcast::tools
