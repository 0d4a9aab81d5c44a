// SPDX-License-Identifier: Apache-2.0
#include "src/stream/state_keeper.h"

#include <chrono>
#include <utility>

#include "src/base/background.h"

namespace kvcast::stream {

StateKeeper::StateKeeper(const ReplayRing& ring, PublisherState* state, int64_t heartbeat_ms,
                         std::function<void()> flush, std::function<void()> heartbeat)
    : ring_(ring),
      state_(state),
      heartbeat_ms_(heartbeat_ms),
      flush_(std::move(flush)),
      heartbeat_(std::move(heartbeat)),
      thread_([this] { Run(); }) {}

StateKeeper::~StateKeeper() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stopped_.NotifyOne();
  thread_.join();
}

bool StateKeeper::Wait() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPeriodMs);
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (!stopped_.WaitUntil(mutex_, until)) return !stopping_;
  }
  return false;
}

void StateKeeper::Run() {
  RunInBackground();
  uint64_t seen = ring_.next_seq();
  auto since = std::chrono::steady_clock::now();
  while (Wait()) {
    flush_();
    if (state_ != nullptr) state_->CatchUp();
    const auto now = std::chrono::steady_clock::now();
    const bool silent = ring_.next_seq() == std::exchange(seen, ring_.next_seq());
    if (!silent) since = now;
    if (heartbeat_ms_ == 0 || now - since < std::chrono::milliseconds(heartbeat_ms_)) continue;
    heartbeat_();
    since = now;
  }
}

}  // namespace kvcast::stream
