// 64 sources need a replay at the same time, and the server answers slowly. A turn is the permit
// for one request. At most four sources have a turn at the same time, and every source gets a turn.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <deque>
#include <memory>

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
  // Returns the number of requests that the sources have sent.
  uint64_t Sent() const {
    uint64_t sent = 0;
    for (uint32_t i = 0; i < kSources; ++i) sent += subscriber_->status(WorkerId(i)).replays;
    return sent;
  }
  // Returns true if each source has sent a request, or waits for its turn.
  bool AllHaveAsked() const {
    for (uint32_t i = 0; i < kSources; ++i) {
      const SourceStatus status = subscriber_->status(WorkerId(i));
      if (status.replays + status.replay_waits == 0) return false;
    }
    return true;
  }
  size_t SyncedSources() const {
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

TEST_F(CrowdTest, AtMostFourRequestsAtOnceAndEverySourceHasATurn) {
  SubscriberConfig config;
  config.replay_timeout_ms = 60000;
  config.probe_interval_ms = 0;
  Follow(config);
  ASSERT_TRUE(Eventually([&] { return AllHaveAsked(); }));
  for (uint32_t answered = 0; answered < kSources; ++answered) {
    const size_t want = std::min<size_t>(answered + kAtOnce, kSources);
    ASSERT_TRUE(Eventually([&] {
      ReceiveRequests();
      return requests_ >= want && Sent() >= want;
    })) << answered;
    ASSERT_EQ(requests_, want);
    ASSERT_EQ(Sent(), want);
    AnswerOldest();
  }
  EXPECT_TRUE(Eventually([&] { return SyncedSources() == kSources; }));
  uint64_t waits = 0;
  for (uint32_t i = 0; i < kSources; ++i) waits += subscriber_->status(WorkerId(i)).replay_waits;
  EXPECT_GE(waits, kSources - kAtOnce);
}

// A source gives up its turn if its request is not answered. The time in the queue for a turn does
// not count towards the timeout. The clock advances only when the test sets it.
TEST_F(CrowdTest, SilentPublishersHoldTheirPlacesForABoundedTime) {
  const auto now_ms = std::make_shared<std::atomic<int64_t>>(0);
  SubscriberConfig config;
  config.replay_timeout_ms = 50;
  config.probe_interval_ms = 0;
  config.now_ms = [now_ms] { return now_ms->load(); };
  Follow(config);
  ASSERT_TRUE(Eventually([&] { return AllHaveAsked(); }));
  for (uint64_t sent = kAtOnce; sent <= kSources; sent += kAtOnce) {
    ASSERT_TRUE(Eventually([&] { return Sent() >= sent; })) << sent;
    ASSERT_EQ(Sent(), sent);
    if (sent < kSources) *now_ms += config.replay_timeout_ms;
  }
  // No source had a second turn before the other sources had their first turn.
  for (uint32_t i = 0; i < kSources; ++i) {
    const SourceStatus status = subscriber_->status(WorkerId(i));
    EXPECT_EQ(status.replays, 1u) << i;
    EXPECT_LE(status.replay_timeouts, 1u) << i;
  }
}

// A source that is removed gives up its turn, or its place in the queue.
TEST_F(CrowdTest, RemovedSourcesGiveUpTheirTurns) {
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

TEST(RequestLimits, ZeroIsAnError) {
  SubscriberConfig no_replays;
  no_replays.max_replays = 0;
  EXPECT_EQ(Subscriber::Create(no_replays).status().code(), StatusCode::kInvalidArgument);
  SubscriberConfig no_status;
  no_status.max_status_requests = 0;
  EXPECT_EQ(Subscriber::Create(no_status).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::stream
