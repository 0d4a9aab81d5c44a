// Logger: the structured log of a process. One line for each event; see log_event.h, log_line.h and
// docs/logging.md.
//
// Write never waits for the output: it puts the line into a bounded queue, which a thread of the
// logger writes. No thread holds the lock of the queue during output, or while Write renders its
// line. If the output is slow and the queue is full, lines are lost and counted. A Write below the
// level of the log takes no lock.
//
// A line must never contain token ids, prompts, hash seeds, keys or bearer tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "src/base/log_limiter.h"
#include "src/base/log_line.h"
#include "src/base/mutex.h"

namespace kvcast {

struct LogCounters {
  uint64_t lines = 0;       // written
  uint64_t suppressed = 0;  // left out because of the limits of LogEvent
  uint64_t lost = 0;        // not written: the queue was full, or the output failed
};

class Logger {
 public:
  struct Config {
    LogLevel level = LogLevel::kInfo;  // events below it are not written
    LogFormat format = LogFormat::kText;
    size_t queue_lines = 4096;
    // Writes one line. False: the output wrote no byte of the line. Called on the logger's thread;
    // may block. Must be set.
    std::function<bool(std::string_view line)> output;
    std::function<int64_t()> now_ms;  // monotonic milliseconds; empty: the steady clock
    std::function<double()> now_s;    // seconds since the Unix epoch; empty: the system's clock
  };

  // Throws std::system_error if no thread can start.
  explicit Logger(Config config);
  // Writes the waiting lines, and the counts of suppressed lines of all windows.
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool Enabled(const LogEvent& event) const { return event.level >= config_.level; }
  // Thread-safe. `source`: the peer or source that caused the event, for the limit; may be empty.
  void Write(const LogEvent& event, std::string_view source, LogFields fields);
  // Waits until all lines before the call are written or lost. Counts of windows that have ended
  // are written too.
  void Flush();
  LogCounters counters() const;

 private:
  void Run();
  void EndWindows(int64_t now_ms) KV_REQUIRES(mutex_);
  void Push(std::string line) KV_REQUIRES(mutex_);
  void WaitForLines() KV_REQUIRES(mutex_);
  void Emit(const std::string& line) KV_REQUIRES(mutex_);
  std::string Line(const LogEvent& event, std::string_view source, LogFields fields) const {
    return RenderLogLine(config_.format, config_.now_s(), event, source, fields);
  }

  const Config config_;
  mutable Mutex mutex_;
  CondVar wake_;
  CondVar written_;
  LogLimiter limiter_ KV_GUARDED_BY(mutex_);
  std::deque<std::string> queue_ KV_GUARDED_BY(mutex_);
  uint64_t queued_ KV_GUARDED_BY(mutex_) = 0;    // lines that were put into queue_
  uint64_t finished_ KV_GUARDED_BY(mutex_) = 0;  // of these, written or lost
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  LogCounters counters_ KV_GUARDED_BY(mutex_);
  uint64_t reported_lost_ KV_GUARDED_BY(mutex_) = 0;
  std::thread thread_;  // last: the thread uses the other members
};

}  // namespace kvcast
