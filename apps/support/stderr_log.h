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

// REQUIRES: each option has a value that the comments of LogOptions list.
std::unique_ptr<Logger> MakeStderrLog(const LogOptions& options);

// Returns the flags that give another `kvcast` process the same options.
std::vector<std::string> FlagsOf(const LogOptions& options);

// Writes lines to a file descriptor. If the reader reads nothing for `patience_ms`, lines are lost:
// a slow reader must not block the process. Thread-compatible.
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
