// Tests networks that stall, end connections, lose messages and delay messages (rows F2, F6, F8,
// F10, F11 and F14 of tests/RELIABILITY.md).
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>

#include "tests/fault/fault_test.h"

namespace kvcast::stream {
namespace {

using std::chrono::milliseconds;

class PartitionTest : public FaultTest {
 protected:
  void Start() {
    publisher_ = MakePublisher(TestPublisherConfig());
    network_ = std::make_unique<Network>(*publisher_);
    Follow(network_->source(kWorker));
    PublishUpTo(*publisher_, 10);
    ASSERT_TRUE(Reaches(SourceState::kSynced, 10));
  }
  // Expects that no batch was lost, applied twice or dropped by a reset.
  void ExpectEachBatchOnce(uint64_t end) {
    EXPECT_TRUE(Reaches(SourceState::kSynced, end));
    EXPECT_EQ(sink_.deliveries(), Batches(0, end));
    EXPECT_EQ(subscriber_->status(kWorker).resets, 0u);
  }

  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<Network> network_;
};

TEST_F(PartitionTest, BothDirectionsStallAndContinue) {
  Start();
  network_->Stall(true);
  const Stopwatch since_stall;
  PublishUpTo(*publisher_, 500);
  ASSERT_TRUE(
      Eventually([&] { return subscriber_->status(kWorker).state != SourceState::kSynced; }));
  Figure("F8", "stall of both directions found", since_stall.seconds(), 3, "s");
  network_->Stall(false);
  const Stopwatch since;
  PublishUpTo(*publisher_, 510);
  ExpectEachBatchOnce(510);
  Figure("F8", "synced after the stall of both directions", since.seconds(), 2, "s");
}

TEST_F(PartitionTest, OneDirectionStallsAndContinues) {
  Start();
  network_->live.StallFromTarget(true);
  PublishUpTo(*publisher_, 500);
  const Stopwatch since_stall;
  // The replay path shows the lost tail.
  ASSERT_TRUE(Eventually([&] { return subscriber_->status(kWorker).next_seq == 500; }));
  Figure("F8", "tail received by replay while the live stream stalls", since_stall.seconds(), 3,
         "s");
  network_->live.StallFromTarget(false);
  const Stopwatch since;
  PublishUpTo(*publisher_, 510);
  ExpectEachBatchOnce(510);
  Figure("F8", "synced after the stall of one direction", since.seconds(), 2, "s");
}

// The network pauses, as if the publisher's process were stopped. The second pause ends after the
// subscriber has noticed the pause.
TEST_F(PartitionTest, APauseLosesNoBatch) {
  Start();
  for (const bool noticed : {false, true}) {
    network_->Stall(true);
    if (noticed) {
      ASSERT_TRUE(Reaches(SourceState::kStale));
    }
    network_->Stall(false);
    const Stopwatch since;
    const uint64_t end = publisher_->next_seq().value + 10;
    PublishUpTo(*publisher_, end);
    ExpectEachBatchOnce(end);
    Figure("F6", std::string("synced after a ") + (noticed ? "long" : "short") + " pause",
           since.seconds(), 2, "s");
  }
}

TEST_F(PartitionTest, CutConnectionsComeBack) {
  Start();
  for (int i = 0; i < 5; ++i) {
    network_->live.Refuse(true);
    network_->Cut();
    const uint64_t end = publisher_->next_seq().value + 50;
    PublishUpTo(*publisher_, end);
    network_->live.Refuse(false);
    const Stopwatch since;
    ExpectEachBatchOnce(end);
    Figure("F8", "synced after a cut connection", since.seconds(), 2, "s");
  }
}

TEST_F(PartitionTest, LateAnswersAreNotTakenForNewAnswers) {
  Start();
  network_->replay.Delay(milliseconds(300));
  for (int i = 0; i < 4; ++i) {
    const uint64_t reconnects = subscriber_->status(kWorker).reconnects;
    network_->live.Cut();
    PublishUpTo(*publisher_, publisher_->next_seq().value + 20);
    // A reconnection makes a new request. The earlier answers are still on their way.
    ASSERT_TRUE(Eventually([&] { return subscriber_->status(kWorker).reconnects > reconnects; }));
  }
  ExpectEachBatchOnce(publisher_->next_seq().value);
}

TEST_F(FaultTest, ALostTailIsFoundInSilence) {
  LossyPublisher publisher;
  Follow(publisher.source());
  for (int i = 0; i < 10; ++i) publisher.Send();
  ASSERT_TRUE(Reaches(SourceState::kSynced, 10));
  for (uint64_t end = 12; end <= 16; end += 2) {
    // The publisher has received the first two probes, and no request is on its way.
    ASSERT_TRUE(Eventually([&] {
      const uint64_t requests = subscriber_->status(kWorker).replays;
      return requests >= 2 && publisher.replay_counters().requests == requests;
    }));
    publisher.Send();
    publisher.Lose();
    const Stopwatch since;
    ASSERT_TRUE(Reaches(SourceState::kSynced, end));
    Figure("F10", "lost tail found", since.seconds(), 2.5, "s");
  }
}

// 10,000 batches of 16 KiB. The reader is slower than the server.
TEST_F(FaultTest, ALongReplayToASlowReaderLosesNothing) {
  constexpr uint64_t kBatches = 10000;
  constexpr size_t kBytes = 16 << 10;
  PublisherConfig config = TestPublisherConfig();
  config.ring_batches = kBatches;
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, kBatches, 0, kBytes);
  const Network network(*publisher);
  std::atomic<uint64_t> received = 0;
  bool in_order = true;
  auto sink = std::make_shared<BatchSink>([&](Seq seq, std::span<const uint8_t> payload) {
    in_order = in_order && seq.value == received && payload.size() >= kBytes;
    if (++received % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
  });
  SubscriberConfig subscriber_config;
  subscriber_config.replay_timeout_ms = 60000;  // a busy machine must not be the cause of a request
  auto subscriber = Subscriber::Create(subscriber_config);
  ASSERT_TRUE(subscriber.ok());
  const Stopwatch since;
  ASSERT_TRUE((*subscriber)->Add(network.source(kWorker), sink).ok());
  ASSERT_TRUE(Eventually([&] { return received == kBatches; })) << received;
  EXPECT_TRUE(in_order);
  const SourceStatus status = (*subscriber)->status(kWorker);
  EXPECT_EQ(status.lost, 0u);
  EXPECT_LE(status.replays, 3u);
  Figure("F2", "batches lost in a replay of 10,000 x 16 KiB", static_cast<double>(status.lost), 0,
         "batches");
  Figure("F2", "replay requests", static_cast<double>(status.replays), 3, "");
  Figure("F2", "duration of the replay", since.seconds(), 10, "s");
}

// The subscriber uses the clock only to wait.
TEST_F(FaultTest, AClockThatJumpsChangesNothing) {
  auto offset_ms = std::make_shared<std::atomic<int64_t>>(0);
  SubscriberConfig config;
  config.now_ms = [offset_ms] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<milliseconds>(now).count() + *offset_ms;
  };
  LossyPublisher publisher;
  Follow(publisher.source(), config);
  // The last offset makes the clock negative on any machine.
  constexpr int64_t kHour = 3600 * 1000;
  constexpr int64_t kAges = int64_t{1000} * 24 * 365 * kHour;
  for (const int64_t offset : {int64_t{0}, kHour, int64_t{0}, -kHour, int64_t{0}, -kAges}) {
    *offset_ms = offset;
    publisher.Lose();
    for (int i = 0; i < 10; ++i) publisher.Send();
    ASSERT_TRUE(Reaches(SourceState::kSynced, publisher.next_seq())) << offset;
  }
  EXPECT_EQ(sink_.deliveries(), Batches(0, publisher.next_seq()));
}

}  // namespace
}  // namespace kvcast::stream
