// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "src/tools/frames_checks.h"

namespace kvcast::tools {
namespace {

namespace fs = std::filesystem;

Result<std::string> ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(StatusCode::kNotFound, path.string() + ": cannot be read");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Status CheckRecording(const FramesRecording& recording, FramesTally& tally) {
  tally.set_record(recording.name);
  CheckSource(recording, tally);
  if (Status status = CheckLive(recording, tally); !status.ok()) return status;
  return CheckReplays(recording, tally);
}

Status CheckContent(const FramesFile& file, FramesTally& tally) {
  for (const FramesRecording& recording : file.recordings) {
    if (Status status = CheckRecording(recording, tally); !status.ok()) return status;
  }
  for (const CapturedConnection& connection : file.connections) {
    if (Status status = CheckCapture(connection, tally); !status.ok()) return status;
  }
  return Status();
}

Status CheckFile(const fs::path& path, ConformanceReport& report) {
  const auto named = [&](const Status& status) {
    return Status(status.code(), path.string() + ": " + status.message());
  };
  const Result<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  const Result<FramesFile> file = ParseFramesFile(*text);
  if (!file.ok()) return named(file.status());
  FramesTally tally(path.string(), report);
  if (Status status = CheckContent(*file, tally); !status.ok()) return named(status);
  ++report.files;
  return Status();
}

bool IsFramesFile(const fs::path& path) {
  if (path.extension() != ".json") return false;
  const Result<std::string> text = ReadText(path);
  return text.ok() && LooksLikeFramesFile(*text);
}

// The files of this class under `folder`, in the order of their names.
Result<std::vector<fs::path>> FindFramesFiles(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored) && IsFramesFile(it->path())) found.push_back(it->path());
  }
  if (error) return Status(StatusCode::kNotFound, folder.string() + ": " + error.message());
  if (found.empty()) {
    return Status(StatusCode::kNotFound, folder.string() + ": holds no file of frames");
  }
  std::sort(found.begin(), found.end());
  return found;
}

Status CheckPath(const fs::path& path, ConformanceReport& report) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return Status(StatusCode::kNotFound, path.string() + ": does not exist");
  if (!fs::is_directory(status)) return CheckFile(path, report);
  const Result<std::vector<fs::path>> files = FindFramesFiles(path);
  if (!files.ok()) return files.status();
  for (const fs::path& file : *files) {
    if (Status checked = CheckFile(file, report); !checked.ok()) return checked;
  }
  return Status();
}

}  // namespace

Status RunFramesConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  for (const std::string& path : paths) {
    if (Status status = CheckPath(path, report); !status.ok()) return status;
  }
  return Status();
}

}  // namespace kvcast::tools
