// Tests frames that are too long to be received (row M7 of tests/RELIABILITY.md). libzmq ends the
// connection that delivers such a frame, and does not reconnect.
// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/fault_test.h"

namespace kvcast::stream {
namespace {

constexpr size_t kLimit = 64 << 10;
constexpr double kTargetMs = 500;

SubscriberConfig LimitedConfig() {
  SubscriberConfig config;
  config.max_frame_bytes = kLimit;
  config.replay_timeout_ms = 60000;  // this timeout must not be the cause of a recovery
  return config;
}

TEST_F(FaultTest, LiveTrafficContinuesAfterAnOversizedFrame) {
  LossyPublisher publisher;
  Follow(publisher.source(), LimitedConfig());
  for (int i = 0; i < 10; ++i) publisher.Send();
  ASSERT_TRUE(Reaches(SourceState::kSynced, 10));
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = subscriber_->status(kWorker).reconnects;
    const Stopwatch since;
    // The publisher drops a frame if the subscription of the new connection has not arrived.
    ASSERT_TRUE(Eventually([&] {
      publisher.SendFrames(
          {"topic", LossyPublisher::SeqText(publisher.next_seq()), std::string(kLimit + 1, 'x')});
      return subscriber_->status(kWorker).reconnects > before;
    }));
    publisher.Send();
    ASSERT_TRUE(Reaches(SourceState::kSynced, publisher.next_seq()));
    Figure("M7", "traffic after an oversized frame", since.seconds() * 1e3, kTargetMs, "ms");
  }
  EXPECT_EQ(sink_.deliveries(), Batches(0, publisher.next_seq()));
  EXPECT_EQ(subscriber_->status(kWorker).lost, 0u);
}

TEST_F(FaultTest, AFrameAtTheLimitPasses) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  PublishUpTo(*publisher, 3, 0, kLimit);
  Follow({kWorker, publisher->endpoint(), publisher->replay_endpoint(), ""}, LimitedConfig());
  ASSERT_TRUE(Reaches(SourceState::kSynced, 3));
  PublishUpTo(*publisher, 6, 0, kLimit);
  ASSERT_TRUE(Reaches(SourceState::kSynced, 6));
  EXPECT_EQ(subscriber_->status(kWorker).reconnects, 0u);
  EXPECT_EQ(subscriber_->status(kWorker).replay_timeouts, 0u);
}

// The batch is also too long for a reply of a replay. The subscriber reports the loss, and receives
// the later batches.
TEST_F(FaultTest, ABatchAboveTheLimitIsReportedAsLost) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  Follow({kWorker, publisher->endpoint(), publisher->replay_endpoint(), ""}, LimitedConfig());
  PublishUpTo(*publisher, 1);
  ASSERT_TRUE(Reaches(SourceState::kSynced, 1));
  PublishUpTo(*publisher, 2, 0, kLimit + 1);
  const Stopwatch since;
  ASSERT_TRUE(Reaches(SourceState::kCleared));
  EXPECT_EQ(subscriber_->status(kWorker).reason, SourceReason::kLostBatches);
  Figure("M7", "loss of a batch above the limit reported", since.seconds() * 1e3, 2000, "ms");
  PublishUpTo(*publisher, 20);
  ASSERT_TRUE(Reaches(SourceState::kCleared, 20));
  auto want = Batches(0, 1);
  want.emplace_back("reset lost_batches");
  const auto later = Batches(2, 20);
  want.insert(want.end(), later.begin(), later.end());
  EXPECT_EQ(sink_.deliveries(), want);
  EXPECT_LE(subscriber_->status(kWorker).replays, 20u);
}

TEST(MaxFrameBytes, MustHoldAStatus) {
  SubscriberConfig config;
  config.max_frame_bytes = 8191;
  EXPECT_EQ(Subscriber::Create(config).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::stream
