// The log of a command, on stderr.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/logger.h"

namespace kvcast::tools {

struct LogOptions {
  std::string format = "text";  // text, json
  std::string level = "info";   // a name of kLogLevelNames
};

// REQUIRES: the options have values that LogOptions names.
std::unique_ptr<Logger> MakeStderrLog(const LogOptions& options);

// The same options as flags of another `kvcast` process.
std::vector<std::string> FlagsOf(const LogOptions& options);

// Writes lines to a file descriptor. A reader that takes nothing for `patience_ms` loses lines, so
// that it cannot stop the process. Thread-compatible.
class LineOutput {
 public:
  explicit LineOutput(int file, int patience_ms = 1000) : file_(file), patience_ms_(patience_ms) {}
  // False: no byte was written.
  bool Write(std::string_view line);

 private:
  bool AwaitRoom(int ms) const;

  const int file_;
  const int patience_ms_;
  bool stuck_ = false;     // the latest wait ended without room
  bool cut_line_ = false;  // the end of the latest line was lost
};

}  // namespace kvcast::tools
