// Tests a subscriber over real sockets: history, gaps, restarts, ranks, and the reported status.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/subscriber.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/base/sanitizers.h"
#include "src/stream/follow/source_link.h"
#include "tests/support/lossy_publisher.h"

namespace kvcast::stream {
namespace {

constexpr WorkerId kWorker(0);

std::unique_ptr<Subscriber> MakeSubscriber(const SubscriberConfig& config = {}) {
  Result<std::unique_ptr<Subscriber>> subscriber = Subscriber::Create(config);
  EXPECT_TRUE(subscriber.ok()) << subscriber.status().ToString();
  return std::move(subscriber).value();
}

SourceConfig SourceOf(const Publisher& publisher, WorkerId worker = kWorker) {
  return {worker, publisher.endpoint(), publisher.replay_endpoint(), ""};
}

bool ReachesState(const Subscriber& subscriber, SourceState state, WorkerId worker = kWorker) {
  return Eventually([&] { return subscriber.status(worker).state == state; });
}

// Publishes until the subscriber, which has no replay, has received a batch.
void SendUntilSeen(LossyPublisher& publisher, const Subscriber& subscriber) {
  ASSERT_TRUE(Eventually([&] {
    publisher.Send();
    return subscriber.status(kWorker).batches > 0;
  }));
}

TEST(Subscriber, SlowJoinerGetsTheHistoryByReplay) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  PublishUpTo(*publisher, 1000);
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*publisher)).ok());
  ASSERT_TRUE(sink.WaitFor(1000));
  PublishUpTo(*publisher, 1010);
  ASSERT_TRUE(sink.WaitFor(1010));
  EXPECT_EQ(sink.deliveries(), Batches(0, 1010));
  EXPECT_TRUE(ReachesState(*subscriber, SourceState::kSynced));
  EXPECT_TRUE(Eventually([&] { return subscriber->status(kWorker).next_seq == 1010; }));
}

TEST(Subscriber, JoiningABusyStreamLosesAndRepeatsNothing) {
  constexpr uint64_t kBatches = 20000;
  PublisherConfig config = TestPublisherConfig();
  config.ring_batches = kBatches;
  const auto publisher = MakePublisher(config);
  std::thread engine([&] { PublishUpTo(*publisher, kBatches); });
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*publisher)).ok());
  engine.join();
  ASSERT_TRUE(sink.WaitFor(kBatches));
  EXPECT_EQ(sink.deliveries(), Batches(0, kBatches));
  EXPECT_TRUE(ReachesState(*subscriber, SourceState::kSynced));
}

// The clock does not advance, and no message arrives. So only the contradiction changes the status.
TEST(Subscriber, AContradictionShowsBeforeTheNextMessage) {
  SubscriberConfig config;
  config.now_ms = [] { return int64_t{1000}; };
  LossyPublisher publisher;
  RecordingSink sink;
  const auto subscriber = MakeSubscriber(config);
  SourceConfig source = publisher.source();
  source.replay_endpoint.clear();
  ASSERT_TRUE(AddSource(*subscriber, sink, source).ok());
  SendUntilSeen(publisher, *subscriber);
  ASSERT_TRUE(
      Eventually([&] { return subscriber->status(kWorker).next_seq == publisher.next_seq(); }));
  const uint64_t resets = subscriber->status(kWorker).resets;
  subscriber->Contradict(kWorker);
  EXPECT_TRUE(Eventually([&] { return subscriber->status(kWorker).resets == resets + 1; }));
  EXPECT_EQ(subscriber->status(kWorker).state, SourceState::kCleared);
}

TEST(Subscriber, AnIdleLinkIsNotDue) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  PublishUpTo(*publisher, 10);
  RecordingSink recorder;
  const auto poller = Poller::Create().value();
  RequestTurns turns{FairPermits(1), FairPermits(1)};
  NameResolver resolver(nullptr);
  const auto link =
      SourceLink::Open(SourceOf(*publisher), {}, {Context::Create(), Context::Create()}, *poller,
                       recorder.Of(kWorker), turns, resolver)
          .value();
  link->Start();
  // The clock does not advance, so only messages cause work.
  while (recorder.deliveries().size() < 10) {
    while (!link->is_due(0)) poller->Wait(-1);
    link->Work(0);
  }
  EXPECT_TRUE(Eventually([&] {
    poller->Wait(0);
    if (link->is_due(0)) link->Work(0);
    return !link->is_due(0);
  }));
}

// The burst has more messages than one turn handles, and no message after the burst wakes the
// subscriber. A message that is sent over inproc is in the queue of the subscriber at once.
TEST(Subscriber, BurstIsReadToItsEnd) {
  Socket pub = Socket::Create(Context::Shared(), ZMQ_PUB).value();
  pub.SetOption(ZMQ_SNDHWM, 0);
  ASSERT_TRUE(pub.Bind("inproc://burst").ok());
  uint64_t sent = 0;
  const auto send = [&] {
    pub.Send({}, /*more=*/true);
    pub.Send(EncodeSeq(sent), /*more=*/true);
    pub.Send(TestPayload(sent), /*more=*/false);
    ++sent;
  };
  std::atomic<bool> published = false;
  std::atomic<uint64_t> next = 0;
  auto sink = std::make_shared<BatchSink>([&](Seq seq, std::span<const uint8_t>) {
    if (next.exchange(seq.value + 1) == 0) published.wait(false);
  });
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(subscriber->Add({kWorker, "inproc://burst", "", ""}, sink).ok());
  ASSERT_TRUE(Eventually([&] {
    send();
    return next > 0;
  }));
  for (int i = 0; i < 2000; ++i) send();
  published = true;
  published.notify_one();
  EXPECT_TRUE(Eventually([&] { return next == sent; }));
}

TEST(Subscriber, WaitsForAPublisherThatIsNotThereYet) {
  PublisherConfig config = TestPublisherConfig();
  {
    const auto ports = MakePublisher(config);
    config.endpoint = ports->endpoint();
    config.replay_endpoint = ports->replay_endpoint();
  }
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(
      AddSource(*subscriber, sink, {kWorker, config.endpoint, config.replay_endpoint, ""}).ok());
  EXPECT_EQ(subscriber->status(kWorker).state, SourceState::kConnecting);
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, 5);
  ASSERT_TRUE(sink.WaitFor(5));
  EXPECT_EQ(sink.deliveries(), Batches(0, 5));
}

class SubscriberLayouts : public testing::TestWithParam<ReplayLayout> {};

TEST_P(SubscriberLayouts, GapIsClosedByReplay) {
  LossyPublisher::Config config;
  config.layout = GetParam();
  LossyPublisher publisher(config);
  publisher.Send();
  RecordingSink sink;
  SubscriberConfig no_probes;
  no_probes.probe_interval_ms = 0;
  const auto subscriber = MakeSubscriber(no_probes);
  ASSERT_TRUE(AddSource(*subscriber, sink, publisher.source()).ok());
  ASSERT_TRUE(ReachesState(*subscriber, SourceState::kSynced));
  for (int i = 0; i < 5; ++i) publisher.Lose();
  ASSERT_TRUE(Eventually([&] {
    publisher.Send();
    return subscriber->status(kWorker).gaps > 0;
  }));
  ASSERT_TRUE(
      Eventually([&] { return subscriber->status(kWorker).next_seq == publisher.next_seq(); }));
  const Texts deliveries = sink.deliveries();
  EXPECT_EQ(deliveries, Batches(0, deliveries.size()));
  EXPECT_EQ(subscriber->status(kWorker).lost, 0u);
}

INSTANTIATE_TEST_SUITE_P(Both, SubscriberLayouts,
                         testing::Values(ReplayLayout::kTopicSeqPayload,
                                         ReplayLayout::kSeqPayload));

TEST(Subscriber, LostTailIsFoundWithoutFurtherTraffic) {
  LossyPublisher publisher;
  RecordingSink sink;
  SubscriberConfig config;
  config.probe_interval_ms = 20;
  const auto subscriber = MakeSubscriber(config);
  ASSERT_TRUE(AddSource(*subscriber, sink, publisher.source()).ok());
  ASSERT_TRUE(ReachesState(*subscriber, SourceState::kSynced));
  for (int i = 0; i < 3; ++i) publisher.Lose();
  ASSERT_TRUE(sink.WaitFor(3));
  EXPECT_EQ(sink.deliveries(), Batches(0, 3));
}

TEST(Subscriber, OverrunRingIsReportedAsALoss) {
  LossyPublisher::Config config;
  config.ring_batches = 4;
  LossyPublisher publisher(config);
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  publisher.Send();
  ASSERT_TRUE(AddSource(*subscriber, sink, publisher.source()).ok());
  ASSERT_TRUE(sink.WaitFor(1));
  for (int i = 0; i < 50; ++i) publisher.Lose();
  ASSERT_TRUE(Eventually([&] {
    publisher.Send();
    return subscriber->status(kWorker).state == SourceState::kCleared;
  }));
  EXPECT_EQ(sink.deliveries()[1], "reset lost_batches");
  EXPECT_GE(subscriber->status(kWorker).lost, 47u);
}

TEST(Subscriber, RestartedPublisherIsAFreshStart) {
  auto publisher = MakePublisher(TestPublisherConfig());
  PublisherConfig same = TestPublisherConfig();
  same.endpoint = publisher->endpoint();
  same.replay_endpoint = publisher->replay_endpoint();
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*publisher)).ok());
  PublishUpTo(*publisher, 5);
  ASSERT_TRUE(sink.WaitFor(5));
  publisher.reset();
  publisher = MakePublisher(same);
  PublishUpTo(*publisher, 9, /*epoch=*/1);
  ASSERT_TRUE(sink.WaitFor(5 + 1 + 9));
  Texts expected = Batches(0, 5);
  expected.push_back("reset restart");
  for (const std::string& batch : Batches(0, 9, 1)) expected.push_back(batch);
  EXPECT_EQ(sink.deliveries(), expected);
  EXPECT_TRUE(ReachesState(*subscriber, SourceState::kSynced));
}

TEST(Subscriber, RestartWithoutNewBatchesIsFoundToo) {
  auto publisher = MakePublisher(TestPublisherConfig());
  PublisherConfig same = TestPublisherConfig();
  same.endpoint = publisher->endpoint();
  same.replay_endpoint = publisher->replay_endpoint();
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*publisher)).ok());
  PublishUpTo(*publisher, 2);
  ASSERT_TRUE(sink.WaitFor(2));
  publisher.reset();
  publisher = MakePublisher(same);
  ASSERT_TRUE(sink.WaitFor(3));
  EXPECT_EQ(sink.deliveries().back(), "reset restart");
}

// Publishes on two ranks, follows both, and expects the batches of each rank under its own worker.
void ExpectRanksApart(PublisherConfig config) {
  const auto rank0 = MakePublisher(config);
  config.data_parallel_rank = 1;
  const auto rank1 = MakePublisher(config);
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*rank0, WorkerId(0))).ok());
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*rank1, WorkerId(1))).ok());
  PublishUpTo(*rank0, 2);
  ASSERT_TRUE(sink.WaitFor(2));
  PublishUpTo(*rank1, 1, /*epoch=*/9);
  ASSERT_TRUE(sink.WaitFor(3));
  EXPECT_EQ(sink.deliveries(), (Texts{"0.0", "0.1", "w1 9.0"}));
}

TEST(Subscriber, RanksAreSourcesOfTheirOwn) { ExpectRanksApart(TestPublisherConfig()); }

TEST(Subscriber, RanksOverInprocAreSourcesOfTheirOwnToo) {
#if defined(KVCAST_THREAD_SANITIZER)
  GTEST_SKIP() << "libzmq is not instrumented: its hand-over between threads looks like a race";
#endif
  PublisherConfig config;
  config.endpoint = "inproc://subscriber-ranks";
  config.replay_endpoint = "inproc://subscriber-ranks-replay";
  ExpectRanksApart(config);
}

TEST(Subscriber, MalformedMessagesAreCountedAndTheStreamGoesOn) {
  LossyPublisher publisher;
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  SourceConfig source = publisher.source();
  source.replay_endpoint.clear();
  ASSERT_TRUE(AddSource(*subscriber, sink, source).ok());
  SendUntilSeen(publisher, *subscriber);
  const std::vector<Texts> malformed = {
      {"topic"},
      {"topic", LossyPublisher::SeqText(1)},
      {"topic", "7 bytes", "payload"},
      {"topic", LossyPublisher::SeqText(uint64_t{1} << 63), "payload"},
      Texts(1000, "x")};
  for (const Texts& frames : malformed) publisher.SendFrames(frames);
  const uint64_t before = sink.deliveries().size();
  publisher.Send();
  ASSERT_TRUE(sink.WaitFor(before + 1));
  ASSERT_TRUE(Eventually([&] { return subscriber->status(kWorker).bad_messages == 5; }));
  EXPECT_EQ(subscriber->status(kWorker).resets, 0u);
}

TEST(Subscriber, TopicIsASubscriptionPrefix) {
  LossyPublisher publisher;
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  SourceConfig matching = publisher.source(WorkerId(0));
  matching.replay_endpoint.clear();
  matching.topic = "top";
  SourceConfig other = matching;
  other.worker = WorkerId(1);
  other.topic = "other";
  ASSERT_TRUE(AddSource(*subscriber, sink, matching).ok());
  ASSERT_TRUE(AddSource(*subscriber, sink, other).ok());
  SendUntilSeen(publisher, *subscriber);
  EXPECT_EQ(subscriber->status(WorkerId(1)).batches, 0u);
}

TEST(Subscriber, RemovedSourceIsSilent) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*publisher)).ok());
  PublishUpTo(*publisher, 1);
  ASSERT_TRUE(sink.WaitFor(1));
  subscriber->Remove(kWorker);
  EXPECT_EQ(subscriber->status(kWorker).batches, 0u);
  PublishUpTo(*publisher, 3);
  ASSERT_TRUE(AddSource(*subscriber, sink, SourceOf(*publisher)).ok());
  ASSERT_TRUE(sink.WaitFor(4));
  EXPECT_EQ(sink.deliveries(), (Texts{"0.0", "0.0", "0.1", "0.2"}));
}

// A removal between the two steps of an addition must not leave a link that no Remove can find.
TEST(Subscriber, SourceThatIsRemovedWhileItIsAddedIsSilent) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  const auto subscriber = MakeSubscriber();
  RecordingSink removed;
  for (int round = 0; round < 100; ++round) {
    std::atomic<bool> added = false;
    std::thread removing([&] {
      while (!added) subscriber->Remove(kWorker);
    });
    const Status status = AddSource(*subscriber, removed, SourceOf(*publisher));
    added = true;
    removing.join();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kFailedPrecondition);
    subscriber->Remove(kWorker);
  }
  // A link that remained is older than the link of `last`, and the subscriber serves links in the
  // order of Add. So the sink `removed` would normally get the batch before the sink `last`.
  RecordingSink last;
  ASSERT_TRUE(AddSource(*subscriber, last, SourceOf(*publisher, WorkerId(1))).ok());
  PublishUpTo(*publisher, 1);
  ASSERT_TRUE(last.WaitFor(1));
  EXPECT_TRUE(removed.deliveries().empty());
}

TEST(Subscriber, SinkMayRemoveItsOwnSource) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  PublishUpTo(*publisher, 100);
  std::atomic<int> batches{0};
  Subscriber* self = nullptr;
  const auto sink_of = [&](WorkerId worker) {
    return std::make_shared<BatchSink>([&, worker](Seq, std::span<const uint8_t>) {
      if (++batches == 10) self->Remove(worker);
    });
  };
  auto subscriber = MakeSubscriber();
  self = subscriber.get();
  ASSERT_TRUE(subscriber->Add(SourceOf(*publisher), sink_of(kWorker)).ok());
  ASSERT_TRUE(Eventually([&] { return batches == 10; }));
  // The subscriber serves sources in the order of Add. So a further call of the removed sink would
  // happen before the call for the new source.
  const auto other = MakePublisher(TestPublisherConfig());
  PublishUpTo(*other, 1);
  ASSERT_TRUE(subscriber->Add(SourceOf(*other, WorkerId(1)), sink_of(WorkerId(1))).ok());
  ASSERT_TRUE(Eventually([&] { return subscriber->status(WorkerId(1)).batches == 1; }));
  EXPECT_EQ(batches, 11);
}

TEST(Subscriber, BadSourcesAreRefused) {
  RecordingSink sink;
  const auto subscriber = MakeSubscriber();
  const auto code = [&](const SourceConfig& source) {
    return AddSource(*subscriber, sink, source).code();
  };
  EXPECT_EQ(code({kWorker, "nonsense", "", ""}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({kWorker, "tcp://127.0.0.1:9", "nonsense", ""}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({kWorker, "tcp://127.0.0.1:9", "", ""}), StatusCode::kOk);
  EXPECT_EQ(code({kWorker, "tcp://127.0.0.1:9", "", ""}), StatusCode::kFailedPrecondition);
  SubscriberConfig bad;
  bad.replay_timeout_ms = 0;
  EXPECT_EQ(Subscriber::Create(bad).status().code(), StatusCode::kInvalidArgument);
  for (const auto time : {&SubscriberConfig::probe_interval_ms, &SubscriberConfig::stale_ms,
                          &SubscriberConfig::audit_interval_ms}) {
    SubscriberConfig negative;
    negative.*time = -1;
    EXPECT_EQ(Subscriber::Create(negative).status().code(), StatusCode::kInvalidArgument);
    negative.*time = 0;
    EXPECT_TRUE(Subscriber::Create(negative).ok());
  }
}

// A source sends faster than its sink applies. Only a few messages wait in the subscriber. The
// other messages wait at the publisher.
TEST(Subscriber, TheBacklogOfASourceIsBounded) {
  constexpr size_t kBytes = 64 << 10;
  constexpr uint64_t kMessages = 20000;  // 1.2 GiB
  constexpr uint64_t kBacklog = 4000;    // the queues of both sides, and the system's buffers
  Socket pub = Socket::Create(Context::Create(), ZMQ_PUB).value();
  pub.SetOption(ZMQ_XPUB_NODROP, 1);
  pub.SetOption(ZMQ_SNDHWM, 1);
  pub.SetOption(ZMQ_LINGER, 0);
  ASSERT_TRUE(pub.Bind("tcp://127.0.0.1:0").ok());
  std::atomic<bool> released{false};
  std::atomic<bool> received{false};
  std::atomic<uint64_t> applied{0};
  const auto sink = std::make_shared<BatchSink>([&](Seq, std::span<const uint8_t>) {
    received = true;
    if (!released) released.wait(false);
    ++applied;
  });
  const auto subscriber = MakeSubscriber();
  ASSERT_TRUE(subscriber->Add({kWorker, pub.last_endpoint(), "", ""}, sink).ok());
  const auto payload = std::make_shared<const Bytes>(kBytes, uint8_t{1});
  uint64_t seq = 0;
  // Returns true if the message was sent. A queue with room for the first part of a message has
  // room for all parts.
  const auto send = [&] {
    if (pub.Send({}, /*more=*/true) != SendResult::kSent) return false;
    pub.Send(EncodeSeq(seq++), /*more=*/true);
    return pub.SendShared(payload, nullptr, /*more=*/false) == SendResult::kSent;
  };
  // Until the subscription arrives at the socket, the socket drops messages.
  ASSERT_TRUE(Eventually([&] {
    send();
    return received.load();
  }));
  const uint64_t first = seq;
  int refused = 0;
  while (seq < first + kMessages && refused < 1000) {
    refused = send() ? 0 : refused + 1;
    if (refused > 0) zmq_poll(nullptr, 0, 1);
  }
  EXPECT_LT(seq - first, kBacklog);
  released = true;
  released.notify_all();
  EXPECT_TRUE(Eventually([&] {
    send();
    return applied > 300;
  })) << applied
      << " of " << seq - first;
}

}  // namespace
}  // namespace kvcast::stream
