// Shows progress on stderr: a bar on a terminal, otherwise a line every 10 %.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace kvcast::tools {

class Progress {
 public:
  Progress(std::string label, int64_t total);
  // Repaints the bar if its text has changed.
  void Update(int64_t done);
  // Ends the bar's line.
  void Finish();

 private:
  const std::string label_;
  const int64_t total_;
  const bool terminal_;
  int64_t shown_percent_ = -1;  // -1: nothing is shown
};

}  // namespace kvcast::tools
