// SPDX-License-Identifier: Apache-2.0
#include "src/base/logger.h"

#include <utility>

#include "src/base/clock.h"

namespace kvcast {
namespace {

constexpr int64_t kTickUs = 1'000'000;  // interval between checks for ended windows

Logger::Config WithClocks(Logger::Config config) {
  if (!config.now_ms) config.now_ms = SteadyMs;
  if (!config.now_s) config.now_s = WallSeconds;
  return config;
}

}  // namespace

Logger::Logger(Config config) : config_(WithClocks(std::move(config))) {
  thread_ = std::thread([this] { Run(); });
}

Logger::~Logger() {
  {
    const MutexLock lock(mutex_);
    EndWindows(LogLimiter::kNever);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void Logger::Write(const LogEvent& event, std::string_view source, LogFields fields) {
  if (!Enabled(event)) return;
  const int64_t now_ms = config_.now_ms();
  {
    const MutexLock lock(mutex_);
    EndWindows(now_ms);
    if (!limiter_.Take(event, source, now_ms)) {
      ++counters_.suppressed;
      return;
    }
  }
  std::string line = Line(event, source, fields);
  {
    const MutexLock lock(mutex_);
    Push(std::move(line));
  }
  wake_.NotifyOne();
}

void Logger::EndWindows(int64_t now_ms) {
  if (now_ms < limiter_.next_end_ms()) return;
  for (const LogLimiter::Suppressed& ended : limiter_.TakeEnded(now_ms)) {
    Push(Line(log_events::kLinesSuppressed, ended.source,
              {{"of", ended.event}, {"lines", ended.lines}}));
  }
}

void Logger::Push(std::string line) {
  if (queue_.size() >= config_.queue_lines) {
    ++counters_.lost;
    return;
  }
  queue_.push_back(std::move(line));
  ++queued_;
}

void Logger::Flush() {
  const MutexLock lock(mutex_);
  EndWindows(config_.now_ms());
  wake_.NotifyOne();
  const uint64_t wanted = queued_;
  while (finished_ < wanted) written_.Wait(mutex_);
}

LogCounters Logger::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

void Logger::WaitForLines() {
  while (queue_.empty() && !stopping_) {
    if (limiter_.next_end_ms() == LogLimiter::kNever) {
      wake_.Wait(mutex_);
    } else {
      (void)wake_.WaitUntil(mutex_, SteadyUs() + kTickUs);
      EndWindows(config_.now_ms());
    }
  }
}

// Releases the lock during the output.
void Logger::Emit(const std::string& line) {
  mutex_.unlock();
  const bool written = config_.output(line);
  mutex_.lock();
  ++(written ? counters_.lines : counters_.lost);
}

void Logger::Run() {
  const MutexLock lock(mutex_);
  while (true) {
    WaitForLines();
    if (queue_.empty()) return;  // stopping
    const std::string line = std::move(queue_.front());
    queue_.pop_front();
    if (const uint64_t lost = counters_.lost - reported_lost_; lost > 0) {
      reported_lost_ = counters_.lost;
      Emit(Line(log_events::kLinesLost, "", {{"lines", lost}}));
    }
    Emit(line);
    ++finished_;
    written_.NotifyAll();
  }
}

}  // namespace kvcast
