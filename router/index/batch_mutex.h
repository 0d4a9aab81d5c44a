// BatchMutex: the mutex of a shard's writers. A large batch can pause between two of its changes,
// so that the batches of other workers do not wait for its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// Decides when a pause ends: when no batch has taken the mutex for kQuietNs, or after kPauseNs.
class PauseEnd {
 public:
  static constexpr int64_t kQuietNs = 50'000;
  static constexpr int64_t kPauseNs = 1'000'000;

  explicit PauseEnd(int64_t now_ns) : begin_ns_(now_ns), quiet_ns_(now_ns) {}
  // `awaited`: a thread waits for the mutex. `taken`: how often the mutex was locked.
  bool IsReached(bool awaited, uint64_t taken, int64_t now_ns) {
    if (awaited || taken != taken_) quiet_ns_ = now_ns;
    taken_ = taken;
    return now_ns - quiet_ns_ >= kQuietNs || now_ns - begin_ns_ >= kPauseNs;
  }

 private:
  const int64_t begin_ns_;
  int64_t quiet_ns_;  // no batch has taken the mutex since this time
  uint64_t taken_ = 0;
};

class KV_CAPABILITY("mutex") BatchMutex {
 public:
  // Locks the mutex for a batch, or for a read of published data. Another batch may be paused at
  // this time.
  void lock() KV_ACQUIRE() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void unlock() KV_RELEASE() { mutex_.unlock(); }
  // Locks the mutex for all other changes. Waits until no batch is paused.
  void LockBetweenBatches() KV_ACQUIRE() {
    lock();
    while (any_paused()) {
      mutex_.unlock();
      // A batch does not pause for this thread again, because this thread does not count as
      // waiting.
      while (any_paused()) std::this_thread::yield();
      mutex_.lock();
    }
  }
  // Unlocks the mutex, lets other batches run, and locks the mutex again. The caller's batch counts
  // as paused during this time. The pause ends when no batch has taken the mutex for kQuietNs, or
  // after kPauseNs. A thread that applies many small batches therefore waits for the large batch
  // only once, not once for each small batch.
  void Pause() KV_REQUIRES(this) {
    paused_.fetch_add(1, std::memory_order_relaxed);
    pauses_.fetch_add(1, std::memory_order_relaxed);
    mutex_.unlock();
    AwaitQuiet();
    mutex_.lock();
    paused_.fetch_sub(1, std::memory_order_relaxed);
  }
  // Yields to the threads that wait for the mutex. The caller must not hold the mutex. std::mutex
  // is not fair: a thread that releases the mutex and locks it again usually gets it before a
  // waiting thread. The caller does not sleep, because its wake-up would take a core from another
  // thread.
  void LetOthersRun() const {
    for (int i = 0; i < kPatience && awaited(); ++i) std::this_thread::yield();
  }
  // Thread-safe. The results of these functions may be outdated when the call returns.
  // True: a thread waits for the mutex.
  bool awaited() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  bool any_paused() const { return paused_.load(std::memory_order_relaxed) > 0; }
  // The number of times that the mutex was locked, without the locks after pauses.
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  uint64_t pauses() const { return pauses_.load(std::memory_order_relaxed); }

 private:
  // Maximum number of yields.
  static constexpr int kPatience = 1000;

  void AwaitQuiet() const {
    PauseEnd end(SteadyNs());
    do {
      std::this_thread::yield();
    } while (!end.IsReached(awaited(), taken(), SteadyNs()));
  }

  std::mutex mutex_;
  std::atomic<int> waiting_{0};
  std::atomic<int> paused_{0};      // number of paused batches; written with mutex_ locked
  std::atomic<uint64_t> taken_{0};  // written with mutex_ locked
  std::atomic<uint64_t> pauses_{0};
};

using BatchLock = ScopedLock<BatchMutex>;

class KV_SCOPED_CAPABILITY BetweenBatchesLock {
 public:
  explicit BetweenBatchesLock(BatchMutex& mutex) KV_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.LockBetweenBatches();
  }
  ~BetweenBatchesLock() KV_RELEASE() { mutex_.unlock(); }
  BetweenBatchesLock(const BetweenBatchesLock&) = delete;
  BetweenBatchesLock& operator=(const BetweenBatchesLock&) = delete;

 private:
  BatchMutex& mutex_;
};

}  // namespace kvcast::router
