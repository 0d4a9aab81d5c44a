// With SubscriberConfig::slow_threads, other threads handle the messages that take long or are
// large. Other sources do not wait for these messages. All calls of the subscriber have the same
// effect as without these threads.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/slow_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/clock.h"
#include "src/stream/follow/turn_budget.h"
#include "tests/support/lossy_publisher.h"

namespace kvcast::stream {
namespace {

constexpr WorkerId kSlow(0);
constexpr WorkerId kQuick(1);
const size_t kLargeBytes = TurnLimits().large_bytes + 1;

// A sink that the test can close. Each call takes at least 3 ms of CPU time while `slow` is set.
class GateSink final : public ReplicaSink {
 public:
  explicit GateSink(bool is_slow = false) : slow(is_slow) {}

  BatchResult Apply(Seq, std::span<const uint8_t>) override {
    ++entered;
    threads.insert(std::this_thread::get_id());
    for (const int64_t begin = ThreadCpuUs(); slow && ThreadCpuUs() - begin < 3000;) {
    }
    closed.wait(true);  // uses no CPU time
    if (on_apply) on_apply();
    ++applied;
    return BatchResult::kApplied;
  }
  void Reset(ResetReason) override { ++resets; }

  void Open() {
    closed = false;
    closed.notify_all();
  }

  std::atomic<bool> slow;
  std::atomic<bool> closed{false};
  std::atomic<int> entered{0};
  std::atomic<int> applied{0};
  std::atomic<int> resets{0};
  std::function<void()> on_apply;     // must not change while a source is followed
  std::set<std::thread::id> threads;  // written by Apply
};

class SlowLaneTest : public ::testing::Test {
 protected:
  // The clock does not advance. A source that was slow once therefore stays slow, and no timer
  // expires.
  void Follow(bool slow_threads = true) {
    SubscriberConfig config;
    config.slow_threads = slow_threads;
    config.now_ms = [] { return int64_t{1000}; };
    subscriber = Subscriber::Create(config).value();
    Add(kSlow, slow_publisher, slow);
    Add(kQuick, quick_publisher, quick);
    SendUntilApplied(slow_publisher, *slow);
    SendUntilApplied(quick_publisher, *quick);
  }
  void Add(WorkerId worker, LossyPublisher& publisher, const std::shared_ptr<GateSink>& sink) {
    SourceConfig source = publisher.source();
    source.worker = worker;
    source.replay_endpoint.clear();
    ASSERT_TRUE(subscriber->Add(source, sink).ok());
  }
  // Sends batches until the sink has applied all of them.
  void SendUntilApplied(LossyPublisher& publisher, const GateSink& sink) {
    const int before = sink.applied;
    ASSERT_TRUE(Eventually([&] {
      if (sink.applied == before) publisher.Send();
      return sink.applied > before;
    }));
    const WorkerId worker = &sink == slow.get() ? kSlow : kQuick;
    ASSERT_TRUE(
        Eventually([&] { return subscriber->status(worker).next_seq == publisher.next_seq(); }));
  }
  void SendLarge(LossyPublisher& publisher, size_t bytes) {
    const uint64_t number = publisher.next_seq();
    publisher.Lose();
    publisher.SendFrames({"topic", LossyPublisher::SeqText(number), std::string(bytes, 'x')});
  }
  // The thread of a lane waits in the sink of the slow source until the test opens the sink.
  void BlockSlowSource(size_t bytes = 0) {
    slow->closed = true;
    const int before = slow->entered;
    bytes > 0 ? SendLarge(slow_publisher, bytes) : slow_publisher.Send();
    ASSERT_TRUE(Eventually([&] { return slow->entered > before; }));
  }

  LossyPublisher slow_publisher;
  LossyPublisher quick_publisher;
  const std::shared_ptr<GateSink> slow = std::make_shared<GateSink>(/*slow=*/true);
  const std::shared_ptr<GateSink> quick = std::make_shared<GateSink>();
  std::unique_ptr<Subscriber> subscriber;
};

TEST_F(SlowLaneTest, OtherSourcesDoNotWaitForASlowBatch) {
  Follow();
  BlockSlowSource();
  SendUntilApplied(quick_publisher, *quick);
  slow->Open();
  ASSERT_TRUE(
      Eventually([&] { return subscriber->status(kSlow).next_seq == slow_publisher.next_seq(); }));
  EXPECT_EQ(subscriber->status(kSlow).gaps, 0u);
  EXPECT_EQ(subscriber->status(kSlow).batches, static_cast<uint64_t>(slow->applied));
  subscriber.reset();
  EXPECT_EQ(slow->threads.size(), 2u);
  EXPECT_EQ(quick->threads.size(), 1u);
}

TEST_F(SlowLaneTest, OtherSourcesDoNotWaitForTheFirstLargeBatch) {
  slow->slow = false;
  Follow();
  SendUntilApplied(slow_publisher, *slow);
  BlockSlowSource(kLargeBytes);
  SendUntilApplied(quick_publisher, *quick);
  slow->Open();
  SendUntilApplied(slow_publisher, *slow);
  EXPECT_EQ(subscriber->status(kSlow).gaps, 0u);
  subscriber.reset();
  EXPECT_EQ(slow->threads.size(), 2u);
}

TEST_F(SlowLaneTest, ASlowSourceDoesNotWaitForALargeBatch) {
  quick->slow = true;
  Follow();
  SendUntilApplied(quick_publisher, *quick);
  BlockSlowSource(kLargeBytes);
  SendUntilApplied(quick_publisher, *quick);
  slow->Open();
  SendUntilApplied(slow_publisher, *slow);
  subscriber.reset();
  EXPECT_EQ(quick->threads.size(), 2u);
}

TEST_F(SlowLaneTest, WithoutTheOptionLargeBatchesAreAppliedToo) {
  Follow(/*slow_threads=*/false);
  const int before = slow->applied;
  SendLarge(slow_publisher, kLargeBytes);
  ASSERT_TRUE(Eventually([&] { return slow->applied > before; }));
}

TEST_F(SlowLaneTest, WithoutTheOptionOneThreadCallsAllSinks) {
  Follow(/*slow_threads=*/false);
  SendUntilApplied(slow_publisher, *slow);
  subscriber.reset();
  EXPECT_EQ(slow->threads.size(), 1u);
  EXPECT_EQ(slow->threads, quick->threads);
}

TEST_F(SlowLaneTest, RemoveWaitsForTheSinkCall) {
  Follow();
  BlockSlowSource();
  const int entered = slow->entered;
  std::atomic<bool> removes{false};
  std::jthread opener([&] {
    while (!removes) std::this_thread::yield();
    slow->Open();
  });
  removes = true;
  subscriber->Remove(kSlow);
  EXPECT_EQ(slow->applied, entered);
  Add(kSlow, slow_publisher, slow);
  SendUntilApplied(slow_publisher, *slow);
}

// The worker gets another source before the sink call has ended.
TEST_F(SlowLaneTest, TheSinkMayRemoveItsSource) {
  std::atomic<bool> armed{false};
  std::atomic<int> entered_at_remove{0};
  std::atomic<bool> added{false};
  slow->on_apply = [&] {
    if (!armed.exchange(false)) return;
    subscriber->Remove(kSlow);
    entered_at_remove = slow->entered.load();
    added.wait(false);
  };
  Follow();
  // More batches wait behind the batch whose sink call removes the source. They are quick, so one
  // turn would handle them all.
  slow->slow = false;
  BlockSlowSource();
  for (int i = 0; i < 10; ++i) slow_publisher.Send();
  armed = true;
  slow->Open();
  ASSERT_TRUE(Eventually([&] { return entered_at_remove > 0; }));
  const auto next = std::make_shared<GateSink>();
  Add(kSlow, slow_publisher, next);
  SendUntilApplied(quick_publisher, *quick);
  added = true;
  added.notify_all();
  ASSERT_TRUE(Eventually([&] {
    slow_publisher.Send();
    return next->applied > 0;
  }));
  EXPECT_EQ(slow->entered, entered_at_remove);
}

TEST_F(SlowLaneTest, AContradictionIsHandledAfterTheSinkCall) {
  Follow();
  BlockSlowSource();
  subscriber->Contradict(kSlow);
  SendUntilApplied(quick_publisher, *quick);
  EXPECT_EQ(slow->resets, 0);
  slow->Open();
  EXPECT_TRUE(Eventually([&] { return slow->resets == 1; }));
}

TEST_F(SlowLaneTest, TheDestructorWaitsForTheSinkCall) {
  Follow();
  BlockSlowSource();
  const int entered = slow->entered;
  std::atomic<bool> ends{false};
  std::jthread opener([&] {
    while (!ends) std::this_thread::yield();
    slow->Open();
  });
  ends = true;
  subscriber.reset();
  EXPECT_EQ(slow->applied, entered);
}

TEST(SlowLane, RunsTheWorkInOrderAndReportsItsEnd) {
  std::atomic<int> reports{0};
  std::vector<uint32_t> ran;
  std::vector<WorkerId> done;
  SlowLane lane([&] { ++reports; });
  EXPECT_FALSE(lane.IsCaller());
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(lane.Give(WorkerId(i), [&, i] {
      EXPECT_TRUE(lane.IsCaller());
      ran.push_back(i);
    }));
  }
  ASSERT_TRUE(Eventually([&] { return reports == 10; }));
  done = lane.TakeDone();
  EXPECT_EQ(ran, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  ASSERT_EQ(done.size(), 10u);
  EXPECT_EQ(done.front(), WorkerId(0));
  EXPECT_TRUE(lane.TakeDone().empty());
}

}  // namespace
}  // namespace kvcast::stream
