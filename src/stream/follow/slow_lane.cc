// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/slow_lane.h"

#include <system_error>
#include <utility>

namespace kvcast::stream {

bool SlowLane::Give(WorkerId worker, std::function<void()> work) {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      return false;
    }
  }
  const MutexLock lock(mutex_);
  queue_.push_back({worker, std::move(work)});
  given_.NotifyOne();
  return true;
}

std::vector<WorkerId> SlowLane::TakeDone() {
  const MutexLock lock(mutex_);
  return std::exchange(done_, {});
}

void SlowLane::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    given_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void SlowLane::Run() {
  id_.store(std::this_thread::get_id());
  for (;;) {
    Work work;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) given_.Wait(mutex_);
      if (stopping_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work.run();
    {
      const MutexLock lock(mutex_);
      done_.push_back(work.worker);
    }
    on_done_();
  }
}

}  // namespace kvcast::stream
