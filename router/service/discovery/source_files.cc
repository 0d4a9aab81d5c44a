// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/source_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/descriptor.h"

namespace kvcast::router {
namespace {

constexpr std::string_view kList = "file";

// The text of an error code. Unlike strerror, it may be called by several threads.
std::string ErrorText(int code) {
  char text[128];
  return strerror_r(code, text, sizeof(text));  // the GNU version, which returns the text
}

Result<std::string> ReadAll(const std::string& path) {
  const auto failed = [](std::string why) { return Status(StatusCode::kNotFound, std::move(why)); };
  // A pipe without a writer must not block.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return failed(ErrorText(errno));
  if (!S_ISREG(info.st_mode)) return failed("not a regular file");
  std::string text;
  for (;;) {
    const size_t old = text.size();
    text.resize(old + 65536);
    const ssize_t got = read(file.get(), text.data() + old, text.size() - old);
    if (got < 0 && errno != EINTR) return failed(ErrorText(errno));
    text.resize(old + static_cast<size_t>(got > 0 ? got : 0));
    if (got == 0) return text;
    if (text.size() > SourceFiles::kMaxBytes) return failed("larger than 16 MiB");
  }
}

}  // namespace

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
        File{path, SourceSet(fleet_, config_.policy, kList, config_.text_of), {}, false, {}}));
    reports_.push_back({.list = path});
  }
}

SourceFiles::~SourceFiles() = default;

void SourceFiles::Begin(SourceLog& log) {
  for (const auto& file : files_) file->sources.LogTo(log);
  Look();
  repeater_ = std::make_unique<Repeater>(kPeriodMs, kPeriodMs, [this] { Look(); });
}

std::vector<SourceListReport> SourceFiles::reports() const {
  const MutexLock lock(mutex_);
  return reports_;
}

void SourceFiles::Look() {
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
  const MutexLock lock(mutex_);
  reports_ = std::move(reports);
}

// The content decides whether a file has changed. Its times do not, because two changes may have
// the same time.
void SourceFiles::Read(File& file) {
  Result<std::string> text = ReadAll(file.path);
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
