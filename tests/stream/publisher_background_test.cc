// The publisher's own threads have the policy SCHED_BATCH, so they seldom interrupt the thread that
// publishes. Publishers can share their threads.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <map>
#include <string>

#include "kvcast/stream/publisher.h"
#include "src/base/sanitizers.h"
#include "tests/support/stream_test_util.h"

namespace kvcast {
namespace {

// Returns the scheduling policies by thread id.
std::map<int, int> Policies() {
  std::map<int, int> policies;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const int thread = std::stoi(task.path().filename());
    policies[thread] = sched_getscheduler(thread);
  }
  return policies;
}

TEST(PublisherBackground, AllThreadsOfAPublisherHaveThePolicyBatch) {
#ifdef KVCAST_THREAD_SANITIZER
  GTEST_SKIP() << "ThreadSanitizer has a thread of its own";
#endif
  if (sched_getscheduler(0) != SCHED_OTHER) GTEST_SKIP() << "the policy was changed already";
  const std::map<int, int> before = Policies();
  const auto publisher =
      Publisher::Create({.endpoint = "tcp://127.0.0.1:0", .replay_endpoint = "tcp://127.0.0.1:0"});
  ASSERT_TRUE(publisher.ok());
  // Each thread of the publisher sets its policy itself when it starts.
  const auto own_policies = [&before] {
    std::map<int, int> policies = Policies();
    for (const auto& [thread, policy] : before) policies.erase(thread);
    return policies;
  };
  const auto all_have_policy_batch = [&own_policies] {
    for (const auto& [thread, policy] : own_policies()) {
      if (policy != SCHED_BATCH) return false;
    }
    return true;
  };
  EXPECT_TRUE(stream::Eventually(all_have_policy_batch));
  // The threads for sending, replay, state and receive limits, and two threads of ZeroMQ.
  EXPECT_EQ(own_policies().size(), 6u);
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
}

TEST(PublisherBackground, PublishersShareOneSetOfThreads) {
  PublisherConfig config{.endpoint = "tcp://127.0.0.1:0", .heartbeat_ms = 0, .flush_ms = 0};
  config.shares_threads = true;
  const auto first = Publisher::Create(config);
  const size_t with_one = Policies().size();
  const auto second = Publisher::Create(config);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Policies().size(), with_one);
  config.shares_threads = false;
  const auto alone = Publisher::Create(config);
  EXPECT_EQ(Policies().size(), with_one + 3);  // one sending thread, two ZeroMQ threads
}

}  // namespace
}  // namespace kvcast
