// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "src/base/clock.h"
#include "src/event_log/log_writer.h"

namespace kvcast::event_log {
namespace {

// Time between two looks at a ring without new batches.
constexpr int64_t kIdleUs = 5'000;
// Time between two looks at a log that cannot be written.
constexpr int64_t kPauseUs = 100'000;

}  // namespace

LogWriterThread::LogWriterThread(LogWriter& writer,
                                 std::function<void(const WriterStatus&)> on_state)
    : writer_(writer), on_state_(std::move(on_state)), thread_([this] { Run(); }) {}

LogWriterThread::~LogWriterThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.join();
}

void LogWriterThread::Run() {
  WriterStatus known;
  while (true) {
    const bool more = writer_.Step();
    WriterStatus status = writer_.status();
    const bool changed = status.state != known.state || status.error != known.error;
    known = std::move(status);
    if (changed && on_state_) on_state_(known);
    const int64_t pause_us = known.state == WriterState::kWriting ? kIdleUs : kPauseUs;
    const int64_t end_us = SteadyUs() + (more ? 0 : pause_us);
    const MutexLock lock(mutex_);
    while (!stopping_ && stop_.WaitUntil(mutex_, end_us)) {
    }
    if (stopping_) return;
  }
}

}  // namespace kvcast::event_log
