// BatchMutex reports whether a thread waits for the mutex. While a batch is paused, other batches
// run, and other changes wait.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/batch_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace kvcast::router {
namespace {

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

// A thread that applies many small batches takes the mutex again at once. The paused batch does not
// run between two of the small batches.
TEST(BatchMutex, APauseLastsWhileOtherBatchesFollowEachOther) {
  PauseEnd end(0);
  int64_t now_ns = 0;
  uint64_t taken = 7;
  while (now_ns + PauseEnd::kQuietNs < PauseEnd::kPauseNs) {
    EXPECT_FALSE(end.IsReached(/*awaited=*/true, taken, now_ns)) << now_ns;
    now_ns += PauseEnd::kQuietNs - 1;
    EXPECT_FALSE(end.IsReached(/*awaited=*/false, ++taken, now_ns)) << now_ns;
  }
  EXPECT_TRUE(end.IsReached(/*awaited=*/true, taken, PauseEnd::kPauseNs));
}

TEST(BatchMutex, APauseEndsWhenNoOtherBatchComes) {
  PauseEnd end(0);
  EXPECT_FALSE(end.IsReached(/*awaited=*/true, 7, 1000));
  EXPECT_FALSE(end.IsReached(/*awaited=*/false, 8, 2000));
  EXPECT_FALSE(end.IsReached(/*awaited=*/false, 8, 2000 + PauseEnd::kQuietNs - 1));
  EXPECT_TRUE(end.IsReached(/*awaited=*/false, 8, 2000 + PauseEnd::kQuietNs));
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
