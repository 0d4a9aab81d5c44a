// FairPool: threads that run the jobs of clients in turns.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/fair_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace kvcast {
namespace {

// A pool with one thread, which waits in its first job until `release` is true.
class FairPoolTest : public ::testing::Test {
 protected:
  FairPoolTest() {
    pool.Post("first", [this] {
      began = true;
      while (!release) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // Stop could return meanwhile
      first_ended = true;
    });
    while (!began) std::this_thread::yield();
  }

  // The pool runs a job that adds `name` to `order`.
  void Post(const std::string& client, char name) {
    pool.Post(client, [this, name] {
      order += name;
      ++ended;
    });
  }
  void AwaitJobs(int count) {
    release = true;
    while (ended < count) std::this_thread::yield();
  }

  std::atomic<bool> began{false};
  std::atomic<bool> release{false};
  std::atomic<bool> first_ended{false};
  std::atomic<int> ended{0};
  std::string order;
  FairPool pool{1};
};

TEST_F(FairPoolTest, TheClientsTakeTurns) {
  for (const char name : std::string("abcd")) Post("one", name);
  for (const char name : std::string("xy")) Post("two", name);
  AwaitJobs(6);
  EXPECT_EQ(order, "axbycd");
}

TEST_F(FairPoolTest, StopWaitsForTheJobThatRunsAndDestroysTheOthers) {
  const auto held = std::make_shared<int>(0);
  pool.Post("client", [this, held] { order += "waits"; });
  std::thread stopping([this] { pool.Stop(); });
  while (held.use_count() > 1) std::this_thread::yield();
  release = true;
  stopping.join();
  EXPECT_TRUE(first_ended);
  EXPECT_EQ(order, "");
  pool.Post("client", [this, held] { order += "late"; });
  EXPECT_EQ(held.use_count(), 1);
  pool.Stop();
  EXPECT_EQ(order, "");
}

TEST(FairPool, ThreadsRunJobsAtTheSameTime) {
  std::atomic<int> running{0};
  FairPool pool(2);
  for (int i = 0; i < 2; ++i) {
    pool.Post("client", [&running] {
      ++running;
      while (running < 2) std::this_thread::yield();
    });
  }
  while (running < 2) std::this_thread::yield();
}

}  // namespace
}  // namespace kvcast
