// Repeater: calls a function again and again, in a thread of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace kvcast {

// Thread-safe.
class Repeater {
 public:
  // The first call comes `first_ms` milliseconds after the construction. Each further call comes
  // `period_ms` milliseconds after the end of the previous call.
  Repeater(int64_t first_ms, int64_t period_ms, std::function<void()> call)
      : Repeater(first_ms, [period_ms, repeated = std::move(call)] {
          repeated();
          return period_ms;
        }) {}
  // As above, but `call` returns the milliseconds until the next call.
  Repeater(int64_t first_ms, std::function<int64_t()> call)
      : call_(std::move(call)), due_us_(SteadyUs() + first_ms * 1000) {
    thread_ = std::thread([this] { Run(); });
  }
  // Waits for the call in progress.
  ~Repeater() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyAll();
    thread_.join();
  }
  // The next call comes at once, or directly after the call in progress.
  void CallSoon() {
    {
      const MutexLock lock(mutex_);
      soon_ = true;
    }
    wake_.NotifyAll();
  }

 private:
  void Run() {
    while (!Wait()) {
      const int64_t pause_ms = call_();
      const MutexLock lock(mutex_);
      due_us_ = SteadyUs() + pause_ms * 1000;
    }
  }
  // Waits until the next call is due. True: there is no next call.
  bool Wait() {
    const MutexLock lock(mutex_);
    while (!stopping_ && !soon_ && wake_.WaitUntil(mutex_, due_us_)) {
    }
    soon_ = false;
    return stopping_;
  }

  const std::function<int64_t()> call_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  bool soon_ KV_GUARDED_BY(mutex_) = false;
  int64_t due_us_ KV_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace kvcast
