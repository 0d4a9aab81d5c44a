// SourceFiles: follows the sources that files list. Other programs write these files, for example
// when engines start and end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/source_list_report.h"
#include "router/service/discovery/source_set.h"
#include "src/base/logger.h"
#include "src/base/mutex.h"
#include "src/base/repeater.h"

namespace kvcast::router {

struct SourceFilesConfig {
  std::vector<std::string> paths;
  // Returns the sources of a file. Not ok: the message is one line.
  std::function<Result<std::vector<WorkerRegistration>>(std::string_view text)> parse;
  SourceText text_of = nullptr;
  SourcePolicy policy;
  Logger* log = nullptr;  // nullptr: no log
};

// Reads each file once per second, in a thread of its own. If a file cannot be read or is invalid,
// the sources of its latest valid content stay. A file need not exist at the start.
class SourceFiles {
 public:
  static constexpr int64_t kPeriodMs = 1000;
  static constexpr size_t kMaxMib = 16;  // of a file

  // Reads nothing before Begin. `fleet` must outlive this object.
  SourceFiles(SourceFilesConfig config, Fleet& fleet);
  // Ends the thread. The sources stay in the fleet.
  ~SourceFiles();

  // Reads each file, and starts the thread. `log` must outlive this object. Call it once.
  void Begin(SourceLog& log);
  // Thread-safe. In the order of SourceFilesConfig::paths.
  std::vector<SourceListReport> reports() const;

 private:
  struct File;

  void ReadAll();
  void Read(File& file);
  void NoteFailure(File& file, const Status& status);

  const SourceFilesConfig config_;
  Fleet& fleet_;
  std::vector<std::unique_ptr<File>> files_;
  mutable Mutex mutex_;
  std::vector<SourceListReport> reports_ KV_GUARDED_BY(mutex_);
  std::unique_ptr<Repeater> repeater_;  // last: its thread uses the other members
};

}  // namespace kvcast::router
