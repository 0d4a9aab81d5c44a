// 64 sources need a replay at the same time, and the server answers slowly. At most four requests
// are open, and every source gets its turn.
// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <set>
#include <thread>

#include "src/stream/net/socket.h"
#include "tests/fault/fault_test.h"

namespace kvcast::stream {
namespace {

constexpr uint32_t kSources = 64;
constexpr size_t kAtOnce = 4;

// All sources are configured with the same PUB and ROUTER socket. The ROUTER answers only when the
// test calls AnswerOldest.
class CrowdTest : public ::testing::Test {
 protected:
  void Follow(const SubscriberConfig& config) {
    subscriber_ = Subscriber::Create(config).value();
    for (uint32_t i = 0; i < kSources; ++i) {
      ASSERT_TRUE(AddSource(*subscriber_, sink_,
                            {WorkerId(i), pub_.last_endpoint(), router_.last_endpoint(), ""})
                      .ok());
    }
  }
  void ReceiveRequests() {
    Multipart message;
    while (router_.Receive(message) != RecvResult::kNone) {
      const Frame identity = message.frames()[0];
      open_.emplace_back(identity.begin(), identity.end());
      ++requests_;
    }
  }
  void AnswerOldest() {
    const Bytes identity = open_.front();
    open_.pop_front();
    router_.Send(identity, /*more=*/true);
    router_.Send({}, /*more=*/true);
    router_.Send(EncodeSeq(kEndSeq), /*more=*/true);
    router_.Send({}, /*more=*/false);
  }
  size_t Bootstrapped() const {
    size_t count = 0;
    for (uint32_t i = 0; i < kSources; ++i) {
      count += subscriber_->status(WorkerId(i)).state == SourceState::kSynced ? 1 : 0;
    }
    return count;
  }

  std::shared_ptr<Context> context_ = Context::Create();
  Socket pub_ = Open(ZMQ_PUB);
  Socket router_ = Open(ZMQ_ROUTER);
  std::deque<Bytes> open_;  // requests that are not answered yet
  size_t requests_ = 0;
  RecordingSink sink_;
  std::unique_ptr<Subscriber> subscriber_;

 private:
  Socket Open(int type) {
    Socket socket = Socket::Create(context_, type).value();
    socket.SetOption(ZMQ_LINGER, 0);
    EXPECT_TRUE(socket.Bind("tcp://127.0.0.1:0").ok());
    return socket;
  }
};

TEST_F(CrowdTest, FourAtOnceAndAllInTurn) {
  SubscriberConfig config;
  config.replay_timeout_ms = 60000;
  config.probe_interval_ms = 0;
  Follow(config);
  const Stopwatch since;
  for (uint32_t answered = 0; answered < kSources; ++answered) {
    const size_t want = std::min<size_t>(answered + kAtOnce, kSources);
    ASSERT_TRUE(Eventually([&] {
      ReceiveRequests();
      return requests_ >= want;
    })) << answered;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ReceiveRequests();
    ASSERT_EQ(requests_, want);
    AnswerOldest();
  }
  EXPECT_TRUE(Eventually([&] { return Bootstrapped() == kSources; }));
  Figure("turns", "64 sources, requests at once", static_cast<double>(kAtOnce), 4, "");
  uint64_t waits = 0;
  for (uint32_t i = 0; i < kSources; ++i) waits += subscriber_->status(WorkerId(i)).replay_waits;
  EXPECT_GE(waits, kSources - kAtOnce);
}

// A source gives up its turn if its request is not answered. The time in the queue for a turn does
// not count towards the timeout.
TEST_F(CrowdTest, SilentPublishersHoldTheirPlacesForABoundedTime) {
  SubscriberConfig config;
  config.replay_timeout_ms = 50;
  config.probe_interval_ms = 0;
  Follow(config);
  const Stopwatch since;
  ASSERT_TRUE(Eventually([&] {
    for (uint32_t i = 0; i < kSources; ++i) {
      if (subscriber_->status(WorkerId(i)).replays == 0) return false;
    }
    return true;
  }));
  Figure("turns", "every silent source had its turn", since.seconds(), 0.05 * kSources / kAtOnce,
         "s");
  // No source had many turns before the other sources had their first turn.
  for (uint32_t i = 0; i < kSources; ++i) {
    const SourceStatus status = subscriber_->status(WorkerId(i));
    EXPECT_LE(status.replays, 3u) << i;
    EXPECT_LE(status.replay_timeouts, status.replays) << i;
  }
}

// A source that is removed gives up its turn, or its place in the queue.
TEST_F(CrowdTest, SourcesThatAreRemovedLeave) {
  SubscriberConfig config;
  config.replay_timeout_ms = 60000;
  Follow(config);
  ASSERT_TRUE(Eventually([&] {
    ReceiveRequests();
    return requests_ == kAtOnce;
  }));
  for (uint32_t i = 0; i + kAtOnce < kSources; ++i) subscriber_->Remove(WorkerId(i));
  ASSERT_TRUE(Eventually([&] {
    for (uint32_t i = kSources - kAtOnce; i < kSources; ++i) {
      if (subscriber_->status(WorkerId(i)).replays == 0) return false;
    }
    return true;
  }));
}

TEST(MaxReplays, ZeroIsAnError) {
  SubscriberConfig config;
  config.max_replays = 0;
  EXPECT_EQ(Subscriber::Create(config).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::stream
