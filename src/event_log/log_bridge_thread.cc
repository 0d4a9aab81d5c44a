// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "src/base/clock.h"
#include "src/event_log/log_bridge.h"

namespace kvcast::event_log {
namespace {

constexpr int64_t kReadWaitMs = 50;
// Time between two looks at a log that cannot be read.
constexpr int64_t kReadPauseUs = 100'000;

}  // namespace

LogBridgeThread::LogBridgeThread(LogBridge& bridge,
                                 std::function<void(const BridgeStatus&)> on_state)
    : bridge_(bridge), on_state_(std::move(on_state)), thread_([this] { Run(); }) {}

LogBridgeThread::~LogBridgeThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.join();
}

void LogBridgeThread::Run() {
  BridgeStatus known;
  while (true) {
    const bool read = bridge_.Step(kReadWaitMs);
    BridgeStatus status = bridge_.status();
    const bool changed = status.state != known.state || status.error != known.error;
    known = std::move(status);
    if (changed && on_state_) on_state_(known);
    const int64_t end_us = SteadyUs() + (read ? 0 : kReadPauseUs);
    const MutexLock lock(mutex_);
    while (!stopping_ && stop_.WaitUntil(mutex_, end_us)) {
    }
    if (stopping_) return;
  }
}

}  // namespace kvcast::event_log
