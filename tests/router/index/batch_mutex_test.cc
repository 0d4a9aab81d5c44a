// BatchMutex reports whether a thread waits for the mutex. While a batch is paused, other batches
// run, and other changes wait.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/batch_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace kvcast::router {
namespace {

constexpr int kBatches = 10'000;

TEST(BatchMutex, CountsWaitersAndNotTheOwner) {
  BatchMutex mutex;
  EXPECT_FALSE(mutex.awaited());
  bool entered = false;
  std::thread waiting;
  {
    const BatchLock lock(mutex);
    EXPECT_FALSE(mutex.awaited());
    waiting = std::thread([&] {
      const BatchLock inner(mutex);
      entered = true;
    });
    while (!mutex.awaited()) std::this_thread::yield();
    EXPECT_FALSE(entered);
  }
  waiting.join();
  EXPECT_TRUE(entered);
  EXPECT_FALSE(mutex.awaited());
}

TEST(BatchMutex, APausedBatchLetsAWaitingBatchRun) {
  BatchMutex mutex;
  std::atomic<bool> ran{false};
  const BatchLock lock(mutex);
  std::jthread other([&] {
    const BatchLock inner(mutex);
    EXPECT_TRUE(mutex.any_paused());
    ran = true;
  });
  while (!mutex.awaited()) std::this_thread::yield();
  while (!ran) mutex.Pause();
  EXPECT_FALSE(mutex.any_paused());
  EXPECT_GE(mutex.pauses(), 1u);
}

// The other thread takes the mutex again at once, as a thread that applies many small batches. The
// paused batch does not run between two of them.
TEST(BatchMutex, APauseLastsWhileOtherBatchesFollowEachOther) {
  BatchMutex mutex;
  int runs = 0;
  const BatchLock lock(mutex);
  std::jthread other([&] {
    for (int i = 0; i < kBatches; ++i) {
      const BatchLock inner(mutex);
      ++runs;
    }
  });
  while (!mutex.awaited()) std::this_thread::yield();
  int pauses = 0;
  while (runs < kBatches) {
    mutex.Pause();
    ++pauses;
  }
  // On a busy machine, the other thread may be suspended between two batches.
  EXPECT_LE(pauses, kBatches / 10);
}

TEST(BatchMutex, OtherChangesWaitForTheEndOfAPausedBatch) {
  BatchMutex mutex;
  std::atomic<bool> batch_runs{true};
  std::atomic<bool> early{false};
  std::jthread change;
  {
    const BatchLock lock(mutex);
    change = std::jthread([&] {
      const BetweenBatchesLock inner(mutex);
      early = batch_runs.load();
    });
    while (!mutex.awaited()) std::this_thread::yield();
    // The thread gets the mutex in a pause, and releases the mutex again.
    while (mutex.awaited()) mutex.Pause();
    batch_runs = false;
  }
  change.join();
  EXPECT_FALSE(early);
}

}  // namespace
}  // namespace kvcast::router
