// A log in memory, with a clock that the test sets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/logger.h"
#include "src/base/mutex.h"

namespace kvcast::testing {

// Thread-safe.
class LogLines {
 public:
  explicit LogLines(LogLevel level = LogLevel::kInfo, LogFormat format = LogFormat::kText)
      : log_(ConfigOf(*this, level, format)) {}

  Logger& log() { return log_; }
  void Advance(int64_t ms) { now_ms_ += ms; }
  // Returns all lines until now, without newlines. Lines of LogFormat::kText are without their
  // times.
  std::vector<std::string> lines() {
    log_.Flush();
    const MutexLock lock(mutex_);
    return lines_;
  }
  // Returns the lines that contain all of these texts.
  std::vector<std::string> With(const std::vector<std::string>& texts) {
    std::vector<std::string> matching = lines();
    std::erase_if(matching, [&](const std::string& line) {
      return !std::ranges::all_of(
          texts, [&](const std::string& text) { return line.find(text) != std::string::npos; });
    });
    return matching;
  }

 private:
  static constexpr size_t kTimeBytes = sizeof("2026-01-01T00:00:00.000Z");

  static Logger::Config ConfigOf(LogLines& own, LogLevel level, LogFormat format) {
    Logger::Config config;
    config.level = level;
    config.format = format;
    config.output = [&own, format](std::string_view line) {
      line.remove_suffix(1);
      if (format == LogFormat::kText) line.remove_prefix(kTimeBytes);
      const MutexLock lock(own.mutex_);
      own.lines_.emplace_back(line);
      return true;
    };
    config.now_ms = [&own] { return own.now_ms_.load(); };
    return config;
  }

  std::atomic<int64_t> now_ms_{1'000'000};
  Mutex mutex_;
  std::vector<std::string> lines_ KV_GUARDED_BY(mutex_);
  Logger log_;  // last: its thread uses the other members
};

}  // namespace kvcast::testing
