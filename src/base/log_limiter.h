// LogLimiter: limits the number of log lines per event and per source. Not thread-safe. Times are
// arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/log_event.h"

namespace kvcast {

class LogLimiter {
 public:
  static constexpr int64_t kWindowMs = 60'000;
  // Maximum number of sources of one event that are counted separately. All further sources count
  // as one source.
  static constexpr size_t kMaxSources = 8192;

  // The lines of one event that were left out in one window.
  struct Suppressed {
    std::string_view event;  // LogEvent::name
    uint64_t lines = 0;
    std::string source;  // of the first line that was left out
  };

  // True: the line may be written. The first line of an event begins its window.
  // REQUIRES: the window of the event has not ended. Call TakeEnded(now_ms) first.
  bool Take(const LogEvent& event, std::string_view source, int64_t now_ms);
  // Ends the windows whose end is reached at `now_ms`. Returns an entry for each of these windows
  // that has suppressed lines.
  std::vector<Suppressed> TakeEnded(int64_t now_ms);
  // The earliest end of an open window. kNever: no window is open.
  int64_t next_end_ms() const;
  static constexpr int64_t kNever = INT64_MAX;

 private:
  struct Window {
    int64_t end_ms = 0;
    uint64_t lines = 0;
    std::map<std::string, uint32_t, std::less<>> by_source;  // number of written lines
    Suppressed suppressed;
  };
  std::map<std::string_view, Window> windows_;  // by event
};

}  // namespace kvcast
