// WaiterCountingMutex reports whether a thread waits for the mutex.
// SPDX-License-Identifier: Apache-2.0
#include "src/base/waiter_counting_mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace kvcast {
namespace {

TEST(WaiterCountingMutex, CountsWaitersAndNotTheOwner) {
  WaiterCountingMutex mutex;
  EXPECT_FALSE(mutex.awaited());
  bool entered = false;
  std::thread waiting;
  {
    const WaiterCountingLock lock(mutex);
    EXPECT_FALSE(mutex.awaited());
    waiting = std::thread([&] {
      const WaiterCountingLock inner(mutex);
      entered = true;
    });
    while (!mutex.awaited()) std::this_thread::yield();
    EXPECT_FALSE(entered);
  }
  waiting.join();
  EXPECT_TRUE(entered);
  EXPECT_FALSE(mutex.awaited());
}

}  // namespace
}  // namespace kvcast
