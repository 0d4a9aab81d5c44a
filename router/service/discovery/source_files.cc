// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/source_files.h"

#include <utility>

#include "router/service/discovery/read_file.h"

namespace kvcast::router {

struct SourceFiles::File {
  std::string path;
  SourceSet sources;
  std::string content;  // of the latest valid reading
  bool valid = false;   // `content` is set
  std::string failure;  // of the latest reading; empty: none
};

SourceFiles::SourceFiles(SourceFilesConfig config, Fleet& fleet)
    : config_(std::move(config)), fleet_(fleet) {
  for (const std::string& path : config_.paths) {
    files_.push_back(std::make_unique<File>(
        File{path, SourceSet(fleet_, config_.policy, "file", config_.text_of), {}, false, {}}));
    reports_.push_back({.list = path});
  }
}

SourceFiles::~SourceFiles() = default;

void SourceFiles::Begin(SourceLog& log) {
  for (const auto& file : files_) file->sources.LogTo(log);
  ReadAll();
  repeater_ = std::make_unique<Repeater>(kPeriodMs, kPeriodMs, [this] { ReadAll(); });
}

std::vector<SourceListReport> SourceFiles::reports() const {
  const MutexLock lock(mutex_);
  return reports_;
}

void SourceFiles::ReadAll() {
  std::vector<SourceListReport> reports;
  for (const auto& file : files_) {
    Read(*file);
    const SourceSet::Changes changes = file->sources.Follow();
    if (config_.log != nullptr && (changes.added > 0 || changes.removed > 0)) {
      config_.log->Write(log_events::kSourceFileRead, file->path,
                         {{"sources", file->sources.followed()},
                          {"added", changes.added},
                          {"removed", changes.removed}});
    }
    const size_t failures = file->failure.empty() ? 0 : 1;
    reports.push_back({file->path, failures + changes.errors.size(), file->sources.followed()});
  }
  fleet_.BeginPolls();
  const MutexLock lock(mutex_);
  reports_ = std::move(reports);
}

// A file has changed if its content differs. The times of the file are not compared, because two
// changes may have the same time.
void SourceFiles::Read(File& file) {
  Result<std::string> text = ReadRegularFile(file.path, kMaxMib);
  if (!text.ok()) return NoteFailure(file, text.status());
  if (!file.valid || *text != file.content) {
    auto sources = config_.parse(*text);
    if (!sources.ok()) return NoteFailure(file, sources.status());
    const Status set = file.sources.Set(std::move(sources).value());
    if (!set.ok()) return NoteFailure(file, set);
    file.content = std::move(text).value();
    file.valid = true;
  }
  file.failure.clear();
}

void SourceFiles::NoteFailure(File& file, const Status& status) {
  const bool known = file.failure == status.message();
  file.failure = status.message();
  if (known || config_.log == nullptr) return;
  config_.log->Write(log_events::kSourceFileFailed, file.path, {{"reason", status.message()}});
}

}  // namespace kvcast::router
