// A relay publishes the batches of its source again. Its subscribers know all that a direct
// subscriber knows. A late subscriber of the relay knows more, because the relay sends snapshots.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/stream_relay.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/stream/relay/relay_sink.h"
#include "tests/support/index_events.h"
#include "tests/support/lossy_publisher.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

constexpr WorkerId kDirect{1};
constexpr WorkerId kThroughRelay{2};

// A publisher without KVX1, like vLLM's publisher.
PublisherConfig PlainConfig() {
  PublisherConfig config = TestPublisherConfig();
  config.extension = false;
  config.heartbeat_ms = 0;
  return config;
}

// The config of a later publisher at the same endpoints.
PublisherConfig ConfigAt(const Publisher& publisher) {
  PublisherConfig config = PlainConfig();
  config.endpoint = publisher.endpoint();
  config.replay_endpoint = publisher.replay_endpoint();
  return config;
}

// Creates the publisher. The ports may still be in use, so the function tries again until they are
// free.
std::unique_ptr<Publisher> PublisherAt(const PublisherConfig& config) {
  std::unique_ptr<Publisher> publisher;
  EXPECT_TRUE(Eventually([&] {
    auto made = Publisher::Create(config);
    if (made.ok()) publisher = std::move(made).value();
    return made.ok();
  }));
  return publisher;
}

SubscriberConfig QuickConfig() {
  return {.replay_timeout_ms = 200, .probe_interval_ms = 100, .stale_ms = 300};
}

struct StreamRelayTest : ::testing::Test {
  // Follows the source directly and behind the relay.
  void Start(const SourceConfig& source) {
    subscriber = Subscriber::Create(QuickConfig()).value();
    SourceConfig direct = source;
    direct.worker = kDirect;
    ASSERT_TRUE(AddSource(*subscriber, direct_sink, direct).ok());
    StreamRelayConfig config;
    config.source = source;
    config.subscriber = QuickConfig();
    config.publisher = TestPublisherConfig();
    auto made = StreamRelay::Create(config);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    relay = std::move(made).value();
    FollowRelay();
  }
  void FollowRelay() {
    const SourceConfig behind = {kThroughRelay, relay->endpoint(), relay->replay_endpoint(), ""};
    ASSERT_TRUE(AddSource(*subscriber, relay_sink, behind).ok());
  }
  void Start(const Publisher& publisher) {
    Start({WorkerId(0), publisher.endpoint(), publisher.replay_endpoint(), ""});
  }
  bool Await(SourceState state) const {
    return AwaitOf(kDirect, state) && AwaitOf(kThroughRelay, state);
  }
  bool AwaitOf(WorkerId worker, SourceState state) const {
    return Eventually([&] { return subscriber->status(worker).state == state; });
  }
  // The deliveries without the number of the worker and without the reason of a reset. To
  // subscribers of the relay, each reset may be a restart.
  static Texts DeliveriesOf(const RecordingSink& sink) {
    Texts texts;
    for (const std::string& text : sink.deliveries()) {
      const bool is_reset = text.find("reset") != std::string::npos;
      texts.push_back(is_reset ? "reset" : text.substr(3));
    }
    return texts;
  }
  // Waits until both subscribers have these deliveries.
  void ExpectDeliveries(const Texts& texts) const {
    EXPECT_TRUE(Eventually([&] {
      return DeliveriesOf(direct_sink) == texts && DeliveriesOf(relay_sink) == texts;
    })) << ::testing::PrintToString(DeliveriesOf(direct_sink))
        << "\n"
        << ::testing::PrintToString(DeliveriesOf(relay_sink));
  }

  RecordingSink direct_sink;
  RecordingSink relay_sink;
  std::unique_ptr<StreamRelay> relay;
  std::unique_ptr<Subscriber> subscriber;
};

TEST_F(StreamRelayTest, TheBatchesDoNotChange) {
  const auto publisher = MakePublisher(PlainConfig());
  Start(*publisher);
  PublishUpTo(*publisher, 20);
  ExpectDeliveries(Batches(0, 20));
  EXPECT_TRUE(Await(SourceState::kSynced));
  EXPECT_EQ(relay->counters().batches, 20u);
  EXPECT_EQ(relay->counters().epochs, 1u);
  EXPECT_EQ(relay->counters().incomplete, 0u);
}

// The relay encodes the batches again. A store in the dialect of vLLM 0.33 would prove this
// release.
TEST_F(StreamRelayTest, WithoutContentTheBatchesShowNoReleaseAndKeepTheMediumOfAClear) {
  PublisherConfig config = PlainConfig();
  config.dialect = Dialect::kKvcast1;
  const auto publisher = MakePublisher(config);
  StreamRelayConfig relayed;
  relayed.source = {WorkerId(0), publisher->endpoint(), publisher->replay_endpoint(), ""};
  relayed.subscriber = QuickConfig();
  relayed.publisher = TestPublisherConfig();
  relayed.publisher.hashes_only = true;
  relay = StreamRelay::Create(relayed).value();
  std::mutex mutex;
  DecodeCounts counts;
  std::vector<Event> events;
  const auto sink = std::make_shared<BatchSink>([&](Seq, std::span<const uint8_t> payload) {
    EventBatch batch;
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(DecodeBatch(payload, WireLimits(), batch, counts).ok());
    events.insert(events.end(), batch.events.begin(), batch.events.end());
  });
  subscriber = Subscriber::Create(QuickConfig()).value();
  ASSERT_TRUE(
      subscriber->Add({kThroughRelay, relay->endpoint(), relay->replay_endpoint(), ""}, sink).ok());
  ASSERT_TRUE(publisher
                  ->Publish(kvcast::testing::Batch(
                      kvcast::testing::StoreFull(kvcast::testing::Hashes(1, 2), 0),
                      AllBlocksCleared{.medium = kMediumCpu}))
                  .ok());
  const auto arrived = [&] {
    const std::lock_guard lock(mutex);
    return events.size() == 2;
  };
  ASSERT_TRUE(Eventually(arrived));
  subscriber.reset();
  EXPECT_EQ(counts.wide_stores, 0u);
  EXPECT_EQ(std::get<AllBlocksCleared>(events[1]).medium, kMediumCpu);
}

TEST_F(StreamRelayTest, ALateSubscriberGetsBatchesThatTheSourceNoLongerHas) {
  PublisherConfig config = PlainConfig();
  config.ring_batches = 2;
  const auto publisher = MakePublisher(config);
  Start(*publisher);
  ASSERT_TRUE(Await(SourceState::kSynced));
  for (uint64_t end = 1; end <= 10; ++end) {
    PublishUpTo(*publisher, end);
    ExpectDeliveries(Batches(0, end));
  }
  RecordingSink late;
  subscriber->Remove(kThroughRelay);
  ASSERT_TRUE(
      AddSource(*subscriber, late, {WorkerId(3), relay->endpoint(), relay->replay_endpoint(), ""})
          .ok());
  EXPECT_TRUE(Eventually([&] { return DeliveriesOf(late) == Batches(0, 10); }));
}

TEST_F(StreamRelayTest, ARestartOfTheSourceIsARestartOfTheRelay) {
  auto publisher = MakePublisher(PlainConfig());
  const PublisherConfig again = ConfigAt(*publisher);
  Start(*publisher);
  PublishUpTo(*publisher, 5);
  ExpectDeliveries(Batches(0, 5));
  publisher.reset();
  publisher = PublisherAt(again);
  PublishUpTo(*publisher, 3, 1);
  Texts texts = Batches(0, 5);
  texts.emplace_back("reset");
  for (const std::string& text : Batches(0, 3, 1)) texts.push_back(text);
  ExpectDeliveries(texts);
  EXPECT_TRUE(Await(SourceState::kSynced));
  EXPECT_EQ(relay->counters().epochs, 2u);
  EXPECT_EQ(relay->counters().incomplete, 0u);
}

TEST_F(StreamRelayTest, ARelayThatStartsLateIsNotComplete) {
  PublisherConfig config = PlainConfig();
  config.ring_batches = 3;
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, 10);
  Start(*publisher);
  ExpectDeliveries(Batches(7, 10));
  EXPECT_TRUE(Await(SourceState::kCleared));
  PublishUpTo(*publisher, 12);
  ExpectDeliveries(Batches(7, 12));
  EXPECT_TRUE(Await(SourceState::kCleared));
  EXPECT_EQ(relay->counters().incomplete, 1u);
}

TEST_F(StreamRelayTest, ARelayWithoutReplaysIsNotComplete) {
  const auto publisher = MakePublisher(PlainConfig());
  // The relay starts after an earlier reader has received a batch. So the relay lacks batch 0.
  RecordingSink early;
  const auto reader = Subscriber::Create(QuickConfig()).value();
  ASSERT_TRUE(AddSource(*reader, early, {WorkerId(9), publisher->endpoint(), "", ""}).ok());
  ASSERT_TRUE(Eventually([&] {
    PublishUpTo(*publisher, publisher->next_seq().value + 1);
    return !early.deliveries().empty();
  }));
  Start({WorkerId(0), publisher->endpoint(), "", ""});
  ASSERT_TRUE(Eventually([&] {
    PublishUpTo(*publisher, publisher->next_seq().value + 1);
    return !DeliveriesOf(relay_sink).empty();
  }));
  EXPECT_TRUE(Await(SourceState::kCleared));
  EXPECT_EQ(relay->counters().incomplete, 1u);
}

TEST_F(StreamRelayTest, LostBatchesAreLostForSubscribers) {
  LossyPublisher publisher({.ring_batches = 2});
  Start(publisher.source());
  ASSERT_TRUE(Await(SourceState::kSynced));
  publisher.Send();
  ExpectDeliveries(Batches(0, 1));
  for (int i = 0; i < 5; ++i) publisher.Lose();
  publisher.Send();  // the ring has the last two batches
  Texts texts = Batches(0, 1);
  texts.emplace_back("reset");
  for (const std::string& text : Batches(5, 7)) texts.push_back(text);
  ExpectDeliveries(texts);
  EXPECT_TRUE(Await(SourceState::kCleared));
}

TEST_F(StreamRelayTest, NothingIsKnownBeforeTheSourceAnswers) {
  std::unique_ptr<Publisher> publisher = MakePublisher(PlainConfig());
  const PublisherConfig again = ConfigAt(*publisher);
  publisher.reset();
  Start({WorkerId(0), again.endpoint, again.replay_endpoint, ""});
  // The subscriber asks the relay several times.
  EXPECT_TRUE(Eventually([&] { return subscriber->status(kThroughRelay).replay_timeouts >= 3; }));
  EXPECT_NE(subscriber->status(kThroughRelay).state, SourceState::kSynced);
  EXPECT_EQ(subscriber->status(kThroughRelay).weight, 0);
  publisher = PublisherAt(again);
  EXPECT_TRUE(Await(SourceState::kSynced));
}

TEST_F(StreamRelayTest, TheRelayOfADeadSourceIsStale) {
  auto publisher = MakePublisher(PlainConfig());
  Start(*publisher);
  PublishUpTo(*publisher, 5);
  ExpectDeliveries(Batches(0, 5));
  ASSERT_TRUE(Await(SourceState::kSynced));
  publisher.reset();
  EXPECT_TRUE(Await(SourceState::kStale));
}

TEST(RelaySink, ItIsSilentUntilTheStateIsKnown) {
  const auto sink = RelaySink::Create(TestPublisherConfig()).value();
  RecordingSink recording;
  const auto subscriber = Subscriber::Create(QuickConfig()).value();
  const SourceConfig source = {kThroughRelay, sink->endpoint(), sink->replay_endpoint(), ""};
  ASSERT_TRUE(AddSource(*subscriber, recording, source).ok());
  EXPECT_TRUE(Eventually([&] { return subscriber->status(kThroughRelay).replay_timeouts >= 3; }));
  EXPECT_NE(subscriber->status(kThroughRelay).state, SourceState::kSynced);
  sink->NoteState(SourceState::kSynced);
  EXPECT_TRUE(
      Eventually([&] { return subscriber->status(kThroughRelay).state == SourceState::kSynced; }));
}

TEST(RelaySink, ASourceThatLacksBatchesBeforeTheFirstIsNotComplete) {
  const auto sink = RelaySink::Create(TestPublisherConfig()).value();
  sink->NoteState(SourceState::kSynced);
  EXPECT_EQ(sink->counters().incomplete, 0u);
  sink->NoteState(SourceState::kCleared);
  sink->NoteState(SourceState::kCleared);
  EXPECT_EQ(sink->counters().incomplete, 1u);
}

// The bound address does not show whether the publisher bound the address or connected to it.
TEST(RelaySink, EachEpochBindsTheEndpoint) {
  PublisherConfig config = TestPublisherConfig();
  config.endpoint = "tcp://*:0";
  const auto sink = RelaySink::Create(config).value();
  sink->Apply(Seq(0), TestPayload(0));
  sink->Reset(ResetReason::kRestart);
  sink->NoteState(SourceState::kSynced);
  ASSERT_EQ(sink->counters().epochs, 2u);
  RecordingSink recording;
  const auto subscriber = Subscriber::Create(QuickConfig()).value();
  const SourceConfig source = {kThroughRelay, sink->endpoint(), sink->replay_endpoint(), ""};
  ASSERT_TRUE(AddSource(*subscriber, recording, source).ok());
  EXPECT_TRUE(
      Eventually([&] { return subscriber->status(kThroughRelay).state == SourceState::kSynced; }));
}

TEST(StreamRelay, AConfigThatNoRelayCanUseIsRefused) {
  StreamRelayConfig config;
  config.source.endpoint = "tcp://127.0.0.1:9";
  config.publisher = TestPublisherConfig();
  config.publisher.replay_endpoint.clear();
  EXPECT_EQ(StreamRelay::Create(config).status().code(), StatusCode::kInvalidArgument);
  config.publisher = TestPublisherConfig();
  config.publisher.epoch = Epoch{};
  EXPECT_EQ(StreamRelay::Create(config).status().code(), StatusCode::kInvalidArgument);
  config.publisher = TestPublisherConfig();
  config.publisher.data_parallel_rank = 1;
  EXPECT_EQ(StreamRelay::Create(config).status().code(), StatusCode::kInvalidArgument);
  config.publisher = TestPublisherConfig();
  config.source.endpoint = "nonsense";
  EXPECT_EQ(StreamRelay::Create(config).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::stream
