// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/conformance.h"
#include "apps/conformance/frames/frames_checks.h"
#include "apps/support/file.h"
#include "apps/support/recording_paths.h"

namespace kvcast::tools {
namespace {

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

Status CheckFile(const std::string& path, ConformanceReport& report) {
  const auto named = [&](const Status& status) {
    return Status(status.code(), path + ": " + status.message());
  };
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  const Result<FramesFile> file = ParseFramesFile(*text);
  if (!file.ok()) return named(file.status());
  FramesTally tally(path, report);
  if (Status status = CheckContent(*file, tally); !status.ok()) return named(status);
  ++report.files;
  return Status();
}

bool IsFramesFile(const std::string& path) {
  if (!HasExtension(path, ".json")) return false;
  const Result<std::string> text = ReadFile(path);
  return text.ok() && LooksLikeFramesFile(*text);
}

}  // namespace

Status RunFramesConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  const auto files = RecordingPaths(paths, IsFramesFile, "file of frames");
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    if (Status status = CheckFile(file, report); !status.ok()) return status;
  }
  return Status();
}

}  // namespace kvcast::tools
