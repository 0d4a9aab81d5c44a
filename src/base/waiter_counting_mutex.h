// WaiterCountingMutex: a mutex that reports whether a thread waits for it. A thread that takes the
// mutex repeatedly can then let other threads take it. std::mutex is not fair: a thread that
// releases the mutex and locks it again usually gets it before a waiting thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "src/base/mutex.h"

namespace kvcast {

class KV_CAPABILITY("mutex") WaiterCountingMutex {
 public:
  void lock() KV_ACQUIRE() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void unlock() KV_RELEASE() { mutex_.unlock(); }
  // Thread-safe. The result may be outdated when the call returns.
  bool awaited() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  // The number of times that the mutex was locked. Thread-safe.
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> taken_{0};  // written by the owner of the mutex
};

using WaiterCountingLock = ScopedLock<WaiterCountingMutex>;

}  // namespace kvcast
