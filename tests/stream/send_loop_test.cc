// The loop sends a published batch soon, even after a pause. Without batches, the loop sleeps.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/send_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "src/stream/net/poll_backoff.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(PollBackoff, NapsGrowUntilItSleeps) {
  PollBackoff plan;
  EXPECT_EQ(plan.Next(true), microseconds(100));
  EXPECT_EQ(plan.Next(false), microseconds(200));
  EXPECT_EQ(plan.Next(false), microseconds(400));
  EXPECT_EQ(plan.Next(false), microseconds(500));
  EXPECT_EQ(plan.Next(false), microseconds(500));
  EXPECT_EQ(plan.Next(true), microseconds(100));
  microseconds awake{0};
  for (auto nap = plan.Next(true); nap; nap = plan.Next(false)) awake += *nap;
  EXPECT_GE(awake, PollBackoff::kAwake);
  EXPECT_LT(awake, PollBackoff::kAwake + PollBackoff::kLongest);
  EXPECT_EQ(plan.Next(false), std::nullopt);
  EXPECT_EQ(plan.Next(true), microseconds(100));
}

// A ring, the PUB socket that sends its batches, and a subscriber.
class Outlet {
 public:
  // `holds`: see LiveSender.
  Outlet(const std::string& name, const std::shared_ptr<Context>& context,
         std::function<bool()> holds = nullptr)
      : sender_(Pub(name, context), "", ring_, /*guard=*/nullptr, std::move(holds)),
        sub_(Socket::Create(context, ZMQ_SUB).value()) {
    sub_.SetOption(ZMQ_RCVHWM, 0);
    sub_.Subscribe("");
    EXPECT_TRUE(sub_.Connect("inproc://" + name).ok());
  }

  LiveSender& sender() { return sender_; }
  // Appends a batch without a notice to the loop.
  void Append() { ring_.Append(EventBatch()); }
  void Publish(SendLoop& loop) {
    Append();
    loop.Notice();
  }
  // Returns the number of messages received since the start.
  size_t Received() {
    for (Multipart message; sub_.Receive(message) != RecvResult::kNone;) ++received_;
    return received_;
  }

 private:
  static Socket Pub(const std::string& name, const std::shared_ptr<Context>& context) {
    Socket pub = Socket::Create(context, ZMQ_PUB).value();
    pub.SetOption(ZMQ_SNDHWM, 0);
    EXPECT_TRUE(pub.Bind("inproc://" + name).ok());
    return pub;
  }

  ReplayRing ring_{100000, SIZE_MAX};
  LiveSender sender_;
  Socket sub_;
  size_t received_ = 0;
};

TEST(SendLoop, SendsPublishedBatchesAlsoAfterAPause) {
  const auto context = Context::Create();
  SendLoop loop;
  Outlet outlet("outlet", context);
  loop.Add(outlet.sender());
  for (size_t sent = 1; sent <= 3; ++sent) {
    outlet.Publish(loop);
    EXPECT_TRUE(Eventually([&] { return outlet.Received() == sent; }));
    ASSERT_TRUE(Eventually([&] { return loop.asleep(); }));
  }
  loop.Remove(outlet.sender());
}

TEST(SendLoop, SendsHeldBatchesLater) {
  const auto context = Context::Create();
  std::atomic<bool> holds = true;
  SendLoop loop;
  Outlet outlet("outlet", context, [&holds] { return holds.load(); });
  loop.Add(outlet.sender());
  outlet.Publish(loop);
  ASSERT_TRUE(Eventually([&] { return loop.asleep(); }));
  EXPECT_EQ(outlet.Received(), 0u);
  holds = false;
  loop.Wake();
  EXPECT_TRUE(Eventually([&] { return outlet.Received() == 1; }));
  loop.Remove(outlet.sender());
}

// A loop that polls would send a batch without a notice. After the append, a second loop, which is
// awake, sends 100 batches. The first loop must send nothing during this time.
TEST(SendLoop, SleepsWhenNothingIsPublished) {
  constexpr size_t kPasses = 100;
  const auto context = Context::Create();
  SendLoop loop;
  SendLoop awake;
  Outlet outlet("outlet", context);
  Outlet other("other", context);
  loop.Add(outlet.sender());
  awake.Add(other.sender());
  ASSERT_TRUE(Eventually([&] { return loop.asleep(); }));
  const auto passes = [&] {
    const size_t begin = other.Received();
    for (size_t sent = begin + 1; sent <= begin + kPasses; ++sent) {
      other.Publish(awake);
      ASSERT_TRUE(Eventually([&] { return other.Received() == sent; }));
    }
  };
  passes();  // time for `loop` to end its last pass, in which asleep() is already true
  outlet.Append();
  passes();
  EXPECT_EQ(outlet.Received(), 0u);
  loop.Notice();
  EXPECT_TRUE(Eventually([&] { return outlet.Received() == 1; }));
  loop.Remove(outlet.sender());
  awake.Remove(other.sender());
}

// A batch that is published while the loop goes to sleep must not be missed.
TEST(SendLoop, MissesNoBatchWhileItGoesToSleep) {
  const auto context = Context::Create();
  SendLoop loop;
  Outlet outlet("outlet", context);
  loop.Add(outlet.sender());
  size_t sent = 0;
  const auto send = [&] {
    outlet.Publish(loop);
    ++sent;
    ASSERT_TRUE(Eventually([&] { return outlet.Received() == sent; })) << sent;
  };
  // The loop stays awake for longer than kAwake, because naps take longer than planned. The test
  // measures this time, and publishes shortly before this time ends.
  for (auto before = milliseconds(0); before < milliseconds(100); before += milliseconds(10)) {
    send();
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(Eventually([&] { return loop.asleep(); }));
    const auto awake = std::chrono::steady_clock::now() - start;
    send();
    std::this_thread::sleep_for(awake - before);
    send();
  }
  loop.Remove(outlet.sender());
}

TEST(SendLoop, ServesASenderWhileOthersAreAddedAndRemoved) {
  constexpr size_t kBatches = 20000;
  // So many that the loop still sends when the sender is removed.
  constexpr size_t kBatchesPerSender = 2000;
  const auto context = Context::Create();
  SendLoop loop;
  Outlet stays("stays", context);
  loop.Add(stays.sender());
  std::thread producer([&] {
    for (size_t i = 0; i < kBatches; ++i) stays.Publish(loop);
  });
  size_t received_from_removed = 0;
  for (int i = 0; i < 50; ++i) {
    Outlet goes("goes" + std::to_string(i), context);
    loop.Add(goes.sender());
    for (size_t batch = 0; batch < kBatchesPerSender; ++batch) goes.Publish(loop);
    loop.Remove(goes.sender());
    while (goes.sender().Send() != LiveSender::Sent::kNothing) {
    }
    received_from_removed += goes.Received();
  }
  producer.join();
  EXPECT_EQ(received_from_removed, 50 * kBatchesPerSender);
  EXPECT_TRUE(Eventually([&] { return stays.Received() == kBatches; }));
  loop.Remove(stays.sender());
}

TEST(SendLoop, TheSharedLoopEndsWithItsLastHolder) {
  std::shared_ptr<SendLoop> loop = SendLoop::Shared();
  EXPECT_EQ(SendLoop::Shared(), loop);
  const std::weak_ptr<SendLoop> watched = loop;
  loop.reset();
  EXPECT_TRUE(watched.expired());
  EXPECT_NE(SendLoop::Shared(), nullptr);
}

}  // namespace
}  // namespace kvcast::stream
