// Tests the live messages of a publisher, and the guarantees for the caller of the publisher.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>

#include "kvcast/wire/wire.h"
#include "tests/stream/peer_test_util.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

using tools::ZmtpPeer;

// Subscribes, and waits until the publisher has received the subscription.
ZmtpPeer Subscribe(const Publisher& publisher, const std::string& topic) {
  Result<ZmtpPeer> peer = ZmtpPeer::Connect(publisher.endpoint());
  EXPECT_TRUE(peer.ok()) << peer.status().ToString();
  EXPECT_TRUE(peer->Handshake("SUB").ok());
  EXPECT_TRUE(peer->Subscribe(topic).ok());
  EXPECT_TRUE(peer->Fence().ok());
  return std::move(peer).value();
}

EventBatch ClearBatch() {
  EventBatch batch;
  batch.ts = 1.5;
  batch.events.emplace_back(AllBlocksCleared());
  return batch;
}

TEST(PublisherLive, MessageIsTopicSeqPayload) {
  PublisherConfig config = TestPublisherConfig();
  config.topic = "kv-events";
  const auto publisher = MakePublisher(config);
  ZmtpPeer peer = Subscribe(*publisher, "kv-events");
  PublishUpTo(*publisher, 2);
  EXPECT_EQ(Receive(peer), (FrameTexts{"kv-events", SeqText(0), "0.0"}));
  EXPECT_EQ(Receive(peer), (FrameTexts{"kv-events", SeqText(1), "0.1"}));
}

TEST(PublisherLive, EmptyTopicIsAnEmptyFrame) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  ZmtpPeer peer = Subscribe(*publisher, "");
  PublishUpTo(*publisher, 1);
  EXPECT_EQ(Receive(peer), (FrameTexts{"", SeqText(0), "0.0"}));
}

TEST(PublisherLive, SubscriptionIsAPrefixOfTheTopic) {
  PublisherConfig config = TestPublisherConfig();
  config.topic = "foo@model";
  const auto publisher = MakePublisher(config);
  ZmtpPeer prefix = Subscribe(*publisher, "foo@");
  ZmtpPeer other = Subscribe(*publisher, "bar");
  PublishUpTo(*publisher, 1);
  EXPECT_EQ(Receive(prefix).size(), 3u);
  ASSERT_TRUE(other.Fence().ok());
  EXPECT_EQ(other.received(), "");
}

TEST(PublisherLive, BatchWithoutRankGetsThePublishersRank) {
  PublisherConfig config = TestPublisherConfig();
  config.data_parallel_rank = 3;
  const auto publisher = MakePublisher(config);
  ZmtpPeer peer = Subscribe(*publisher, "");
  EventBatch ranked = ClearBatch();
  ranked.data_parallel_rank = 7;
  ASSERT_TRUE(publisher->Publish(ClearBatch()).ok());
  ASSERT_TRUE(publisher->Publish(ranked).ok());
  for (const int64_t rank : {3, 7}) {
    const FrameTexts frames = Receive(peer);
    ASSERT_EQ(frames.size(), 3u);
    EventBatch batch;
    DecodeCounts counts;
    const auto* data = reinterpret_cast<const uint8_t*>(frames[2].data());
    ASSERT_TRUE(DecodeBatch({data, frames[2].size()}, {}, batch, counts).ok());
    EXPECT_EQ(batch.data_parallel_rank, rank);
    EXPECT_EQ(batch.events.size(), 1u);
  }
}

// Returns a batch that cannot be encoded.
EventBatch UnencodableBatch() {
  EventBatch batch = ClearBatch();
  batch.events.emplace_back(BlockStored{.medium = "\xff not text"});
  return batch;
}

// The events of a refused batch are lost to subscribers, so the subscribers must see a gap.
TEST(PublisherLive, RefusedBatchUsesUpItsNumber) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  ZmtpPeer peer = Subscribe(*publisher, "");
  ASSERT_EQ(publisher->Publish(ClearBatch()).value(), Seq(0));
  EXPECT_FALSE(publisher->Publish(UnencodableBatch()).ok());
  EXPECT_EQ(publisher->PublishPayload({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(publisher->next_seq(), Seq(3));
  EXPECT_EQ(publisher->Publish(ClearBatch()).value(), Seq(3));
  EXPECT_EQ(Receive(peer)[1], SeqText(0));
  EXPECT_EQ(Receive(peer)[1], SeqText(3));
  EXPECT_EQ(publisher->counters().encode_errors, 2u);
  EXPECT_EQ(publisher->counters().batches, 4u);
  EXPECT_EQ(publisher->counters().live_dropped, 0u);
}

// A subscriber sees a gap at the end of the stream only with the next batch. If no batch follows, a
// heartbeat must follow, even if the refused batch was the first batch.
TEST(PublisherLive, HeartbeatFollowsARefusedBatch) {
  PublisherConfig config = TestPublisherConfig();
  config.heartbeat_ms = 1;
  const auto publisher = MakePublisher(config);
  ZmtpPeer peer = Subscribe(*publisher, "");
  EXPECT_FALSE(publisher->Publish(UnencodableBatch()).ok());
  EXPECT_EQ(Receive(peer)[1], SeqText(1));
}

EventBatch Decoded(const std::string& payload) {
  EventBatch batch;
  DecodeCounts counts;
  const std::vector<uint8_t> bytes(payload.begin(), payload.end());
  EXPECT_TRUE(DecodeBatch(bytes, WireLimits(), batch, counts).ok());
  return batch;
}

// An idle engine resets its cache. No later step publishes a batch that could carry the event.
TEST(PublisherLive, AddedEventsAreSentThoughNoBatchFollows) {
  PublisherConfig config = TestPublisherConfig();
  config.heartbeat_ms = 0;
  const auto publisher = MakePublisher(config);
  ZmtpPeer peer = Subscribe(*publisher, "");
  publisher->Add({AllBlocksCleared()}, /*ts=*/2.5);
  const FrameTexts frames = Receive(peer);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1], SeqText(0));
  EXPECT_EQ(Decoded(frames[2]).ts, 2.5);
  EXPECT_EQ(Decoded(frames[2]).events, std::vector<Event>{AllBlocksCleared()});
}

TEST(PublisherLive, AddedEventsComeBeforeTheNextBatch) {
  PublisherConfig config = TestPublisherConfig();
  config.flush_ms = 0;
  const auto publisher = MakePublisher(config);
  ZmtpPeer peer = Subscribe(*publisher, "");
  const BlockRemoved removed{.block_hashes = {BlockHash(7)}};
  publisher->Add({removed}, 2.5);
  EXPECT_EQ(publisher->next_seq(), Seq(0));
  ASSERT_TRUE(publisher->Publish(ClearBatch()).ok());
  EXPECT_EQ(Decoded(Receive(peer)[2]).events, (std::vector<Event>{removed, AllBlocksCleared()}));
  publisher->Add({removed}, 2.5);
  EXPECT_TRUE(publisher->Flush().ok());
  EXPECT_TRUE(publisher->Flush().ok()) << "no event is pending";
  EXPECT_EQ(publisher->next_seq(), Seq(2));
  EXPECT_EQ(Decoded(Receive(peer)[2]).events, std::vector<Event>{removed});
}

TEST(PublisherLive, DoesNotBlockWithoutSubscriber) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  PublishUpTo(*publisher, 20000);
  EXPECT_EQ(publisher->counters().batches, 20000u);
}

TEST(PublisherLive, StalledSubscriberDoesNotBlockThePublisherOrOtherSubscribers) {
  constexpr uint64_t kBatches = 1000;
  const auto publisher = MakePublisher(TestPublisherConfig());
  ZmtpPeer stalled = Subscribe(*publisher, "");
  ZmtpPeer reading = Subscribe(*publisher, "");
  PublishUpTo(*publisher, kBatches, /*epoch=*/0, /*size=*/32 << 10);
  for (uint64_t seq = 0; seq < kBatches; ++seq) {
    const FrameTexts frames = Receive(reading);
    ASSERT_EQ(frames.size(), 3u);
    ASSERT_EQ(frames[1], SeqText(seq));
  }
}

TEST(PublisherLive, BatchesThatLeaveTheRingUnsentAreCountedAndLeaveAGap) {
  constexpr uint64_t kBatches = 20000;
  PublisherConfig config = TestPublisherConfig();
  config.ring_batches = 2;
  const auto publisher = MakePublisher(config);
  ZmtpPeer peer = Subscribe(*publisher, "");
  PublishUpTo(*publisher, kBatches);
  uint64_t received = 0;
  for (std::string seq; seq != SeqText(kBatches - 1);) {
    const FrameTexts frames = Receive(peer);
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_GT(frames[1], seq);
    seq = frames[1];
    ++received;
  }
  EXPECT_EQ(received + publisher->counters().live_dropped, kBatches);
}

TEST(PublisherLive, DestructionSendsTheQueuedBatches) {
  constexpr uint64_t kBatches = 3000;
  auto publisher = MakePublisher(TestPublisherConfig());
  ZmtpPeer peer = Subscribe(*publisher, "");
  uint64_t received = 0;
  std::thread reader([&] {
    while (received < kBatches && Receive(peer).size() == 3) ++received;
  });
  PublishUpTo(*publisher, kBatches, /*epoch=*/0, /*size=*/4000);
  publisher.reset();
  reader.join();
  EXPECT_EQ(received, kBatches);
}

TEST(PublisherLive, DestructionSendsABatchThatWasJustPublished) {
  for (int i = 0; i < 20; ++i) {
    auto publisher = MakePublisher(TestPublisherConfig());
    ZmtpPeer peer = Subscribe(*publisher, "");
    PublishUpTo(*publisher, 1);
    publisher.reset();
    ASSERT_EQ(Receive(peer).size(), 3u);
  }
}

TEST(PublisherLive, DestructionSendsTheQueuedBatchesThroughSharedThreads) {
  constexpr uint64_t kBatches = 3000;
  PublisherConfig config = TestPublisherConfig();
  config.shares_threads = true;
  auto first = MakePublisher(config);
  auto last = MakePublisher(config);
  ZmtpPeer first_peer = Subscribe(*first, "");
  ZmtpPeer last_peer = Subscribe(*last, "");
  uint64_t received = 0;
  std::thread reader([&] {
    while (received < kBatches && Receive(first_peer).size() == 3) ++received;
    while (received < 2 * kBatches && Receive(last_peer).size() == 3) ++received;
  });
  PublishUpTo(*first, kBatches, /*epoch=*/0, /*size=*/4000);
  PublishUpTo(*last, kBatches, /*epoch=*/0, /*size=*/4000);
  first.reset();
  last.reset();
  reader.join();
  EXPECT_EQ(received, 2 * kBatches);
}

TEST(PublisherLive, PortsAreFreeAfterDestruction) {
  auto publisher = MakePublisher(TestPublisherConfig());
  PublisherConfig same = TestPublisherConfig();
  same.endpoint = publisher->endpoint();
  same.replay_endpoint = publisher->replay_endpoint();
  publisher.reset();
  EXPECT_NE(MakePublisher(same), nullptr);
}

}  // namespace
}  // namespace kvcast::stream
