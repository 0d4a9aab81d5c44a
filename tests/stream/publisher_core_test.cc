// Tests the numbers, pending events and heartbeats of PublisherCore without threads. The test sets
// the clock.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/publisher_core.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kvcast/core/redact.h"

namespace kvcast::stream {
namespace {

EventBatch BatchOf(double ts, size_t events) {
  EventBatch batch;
  batch.ts = ts;
  batch.events.resize(events, AllBlocksCleared());
  return batch;
}

class PublisherCoreTest : public ::testing::Test {
 protected:
  PublisherCoreTest() : core(Config(), [this] { return now_ms * 1000; }) {}
  static PublisherConfig Config() {
    PublisherConfig config;
    config.heartbeat_ms = 1000;
    config.flush_ms = 50;
    return config;
  }
  void TickAt(int64_t ms) {
    now_ms = ms;
    core.Tick();
  }
  uint64_t next_seq() const { return core.ring().next_seq(); }
  // Returns the decoded batch of this number.
  EventBatch BatchAt(uint64_t seq) {
    std::vector<RingEntry> entries;
    core.ring().Read(seq, seq + 1, 1, entries);
    EventBatch batch;
    DecodeCounts counts;
    EXPECT_EQ(entries.size(), 1u);
    EXPECT_TRUE(DecodeBatch(*entries.at(0).payload, WireLimits(), batch, counts).ok());
    return batch;
  }

  int64_t now_ms = 5000;
  PublisherCore core;
};

TEST_F(PublisherCoreTest, NoHeartbeatBeforeTheFirstBatch) {
  TickAt(9000);
  EXPECT_EQ(next_seq(), 0u);
}

TEST_F(PublisherCoreTest, AHeartbeatFollowsAPayloadWithATimeStamp) {
  const std::vector<uint8_t> payload = {0x93, 0x01, 0x90, 0xc0};
  ASSERT_TRUE(core.PublishPayload(payload).ok());
  TickAt(5020);
  TickAt(9000);
  EXPECT_EQ(next_seq(), 1u);  // the time is not known
  ASSERT_TRUE(core.PublishPayload(payload, 100).ok());
  TickAt(9020);  // the core notices the batch
  TickAt(10020);
  ASSERT_EQ(next_seq(), 3u);
  EXPECT_NEAR(BatchAt(2).ts, 101.02, 1e-9);
}

// A subscriber that asks for no status learns from the heartbeat that it lacks earlier batches.
TEST_F(PublisherCoreTest, AHeartbeatFollowsAResumedState) {
  PublishedState state;
  state.status.next_seq = 7;
  ASSERT_TRUE(core.KeepState(Epoch(), state).ok());
  TickAt(5020);  // the core notices the state
  TickAt(6019);
  EXPECT_EQ(next_seq(), 7u);
  TickAt(6020);
  ASSERT_EQ(next_seq(), 8u);
  EXPECT_TRUE(BatchAt(7).events.empty());
  EXPECT_NEAR(BatchAt(7).ts, WallSeconds(), 3600);
}

TEST_F(PublisherCoreTest, ASilentPublisherSendsNoHeartbeat) {
  ASSERT_TRUE(core.Publish(BatchOf(100, 1)).ok());
  core.SetSilent(true);
  TickAt(5020);
  TickAt(9000);
  EXPECT_EQ(next_seq(), 1u);
  core.SetSilent(false);
  TickAt(9020);
  EXPECT_EQ(next_seq(), 2u);
}

TEST_F(PublisherCoreTest, APublisherSpeaksUntilAGivenTime) {
  ASSERT_TRUE(core.Publish(BatchOf(100, 1)).ok());
  core.SetSilent(true);
  core.SpeakUntil(9'000'000);
  TickAt(5020);
  TickAt(8999);
  EXPECT_FALSE(core.silent());
  EXPECT_EQ(next_seq(), 2u);
  TickAt(9000);
  EXPECT_TRUE(core.silent());
  TickAt(20000);
  EXPECT_EQ(next_seq(), 2u) << "a silent publisher must send no heartbeat";
  core.SetSilent(false);
  TickAt(20020);
  EXPECT_EQ(next_seq(), 3u);
}

TEST_F(PublisherCoreTest, AHeartbeatContinuesTheTimeOfTheBatches) {
  ASSERT_TRUE(core.Publish(BatchOf(100, 1)).ok());
  TickAt(5020);  // the core notices the batch
  TickAt(6019);
  EXPECT_EQ(next_seq(), 1u);
  TickAt(6020);
  ASSERT_EQ(next_seq(), 2u);
  EXPECT_TRUE(BatchAt(1).events.empty());
  EXPECT_NEAR(BatchAt(1).ts, 101.02, 1e-6);
  EXPECT_EQ(core.heartbeats(), 1u);
}

TEST_F(PublisherCoreTest, PendingEventsAreInFrontOfTheNextBatch) {
  BlockRemoved removed;
  removed.block_hashes = {BlockHash::FromUnsigned(7)};
  core.Add({removed}, 99);
  ASSERT_EQ(core.Publish(BatchOf(100, 1))->value, 0u);
  const EventBatch batch = BatchAt(0);
  ASSERT_EQ(batch.events.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<BlockRemoved>(batch.events[0]));
  EXPECT_EQ(batch.ts, 100);
}

TEST_F(PublisherCoreTest, PendingEventsGetABatchWhenTheyAreDue) {
  core.Add(BatchOf(0, 1).events, 99);
  TickAt(5049);
  EXPECT_EQ(next_seq(), 0u);
  TickAt(5050);
  ASSERT_EQ(next_seq(), 1u);
  EXPECT_EQ(BatchAt(0).ts, 99);
}

TEST_F(PublisherCoreTest, ARefusedBatchUsesItsNumber) {
  EventBatch bad = BatchOf(100, 1);
  std::get<AllBlocksCleared>(bad.events[0]).medium = "\xff";
  EXPECT_FALSE(core.Publish(std::move(bad)).ok());
  EXPECT_EQ(core.Publish(BatchOf(101, 1))->value, 1u);
  EXPECT_EQ(core.encode_errors(), 1u);
  std::vector<RingEntry> entries;
  core.ring().Read(0, 2, 2, entries);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].seq, 1u);
}

BlockStored StoreWithContent() {
  BlockStored stored;
  stored.block_hashes = {BlockHash::FromUnsigned(7)};
  stored.token_ids = std::vector<TokenId>(16, 12345);
  stored.block_size = 16;
  stored.lora_name = "tenant";
  return stored;
}

std::vector<uint8_t> PayloadOf(const EventBatch& batch, Dialect dialect) {
  std::vector<uint8_t> payload;
  EXPECT_TRUE(EncodeBatch(batch, dialect, payload).ok());
  return payload;
}

// An array of a time stamp and one event with an unknown tag.
const std::vector<uint8_t> kUnknownEvent = {0x92, 0x01, 0x91, 0x91, 0xa3, 'N', 'e', 'w'};
const std::vector<uint8_t> kGarbage = {0xff, 0x00};

std::vector<RingEntry> AllOf(PublisherCore& core) {
  std::vector<RingEntry> entries;
  core.ring().Read(0, core.ring().next_seq(), 100, entries);
  return entries;
}

TEST(PublisherCore, WithHashesOnlyNoBatchHasContentOfPrompts) {
  PublisherConfig config;
  config.hashes_only = true;
  PublisherCore core(config, [] { return 0; });
  const BlockStored stored = StoreWithContent();
  core.Add({stored}, 99);
  EventBatch batch;
  batch.events = {stored};
  ASSERT_TRUE(core.Publish(std::move(batch)).ok());
  std::vector<RingEntry> entries;
  core.ring().Read(0, 1, 1, entries);
  EventBatch sent;
  DecodeCounts counts;
  ASSERT_TRUE(DecodeBatch(*entries.at(0).payload, WireLimits(), sent, counts).ok());
  ASSERT_EQ(sent.events.size(), 2u);
  for (const Event& event : sent.events) {
    const auto& redacted = std::get<BlockStored>(event);
    EXPECT_EQ(redacted.token_ids, std::vector<TokenId>());
    EXPECT_EQ(redacted.lora_name, std::nullopt);
    EXPECT_EQ(redacted.block_hashes, stored.block_hashes);
  }
}

// The thread that calls Tick reads the batches for the digests. Without Tick, batches leave the
// ring before this thread has read them.
TEST(PublisherCore, ManyPayloadsBetweenTwoTicksLoseNoDigests) {
  constexpr uint64_t kBatches = 500;
  PublisherConfig config;
  config.ring_batches = 4;
  config.ring_bytes = 2000;
  PublisherCore core(config, [] { return 0; });
  core.KeepState(residency::Epoch());
  for (uint64_t i = 0; i < kBatches; ++i) {
    BlockStored stored;
    stored.block_hashes = {BlockHash::FromUnsigned(i)};
    stored.block_size = 16;
    EventBatch batch{.ts = 1};
    batch.events.emplace_back(std::move(stored));
    ASSERT_TRUE(core.PublishPayload(PayloadOf(batch, kDefaultDialect)).ok());
  }
  const residency::PublisherStatus status = core.state()->Status(false);
  ASSERT_TRUE(status.has_digests);
  EXPECT_EQ(status.next_seq, kBatches);
  EXPECT_EQ(status.Totals().at(0).total.copies, kBatches);
}

TEST(PublisherCore, WithHashesOnlyNoPayloadHasContentOfPrompts) {
  PublisherConfig config;
  config.hashes_only = true;
  config.data_parallel_rank = 3;
  PublisherCore core(config, [] { return 0; });
  EventBatch batch{.ts = 7, .events = {StoreWithContent(), AllBlocksCleared()}};
  for (const auto rank : {std::optional<int64_t>(), std::optional<int64_t>(5)}) {
    batch.data_parallel_rank = rank;
    ASSERT_TRUE(core.PublishPayload(PayloadOf(batch, Dialect::kVllm8)).ok());
  }
  EventBatch expected = batch;
  Redact(expected);
  expected.data_parallel_rank = 3;
  const auto entries = AllOf(core);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(*entries[0].payload, PayloadOf(expected, kDefaultDialect));
  expected.data_parallel_rank = 5;
  EXPECT_EQ(*entries[1].payload, PayloadOf(expected, kDefaultDialect));
}

TEST(PublisherCore, WithHashesOnlyAPayloadThatCannotBeDecodedIsNotPublished) {
  PublisherConfig config;
  config.hashes_only = true;
  PublisherCore core(config, [] { return 0; });
  EXPECT_EQ(core.PublishPayload(kGarbage).status().code(), StatusCode::kMalformed);
  EXPECT_EQ(core.PublishPayload(kUnknownEvent).status().code(), StatusCode::kMalformed);
  ASSERT_TRUE(core.PublishPayload(PayloadOf(BatchOf(1, 1), kDefaultDialect)).ok());
  const auto entries = AllOf(core);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].seq, 2u) << "each refused payload uses a number";
  EXPECT_EQ(core.encode_errors(), 2u);
}

TEST(PublisherCore, ObservesEachBatchBeforeItsContentIsRemoved) {
  for (const bool hashes_only : {false, true}) {
    std::vector<std::optional<std::vector<Event>>> seen;
    int64_t now_ms = 5000;
    PublisherConfig config;
    config.hashes_only = hashes_only;
    config.observe = [&](const EventBatch* batch) {
      seen.push_back(batch == nullptr ? std::nullopt : std::optional(batch->events));
    };
    PublisherCore core(config, [&] { return now_ms * 1000; });
    const std::vector<Event> stores = {StoreWithContent()};
    const std::vector<uint8_t> payload = PayloadOf({.ts = 1, .events = stores}, kDefaultDialect);
    core.Add(BatchOf(0, 1).events, 99);
    ASSERT_TRUE(core.PublishPayload(payload).ok());
    ASSERT_TRUE(core.Publish({.ts = 1, .events = stores}).ok());
    for (const auto& bad : {kGarbage, kUnknownEvent}) {
      EXPECT_EQ(core.PublishPayload(bad).ok(), !hashes_only);
    }
    EXPECT_FALSE(core.PublishPayload({}).ok());
    core.Tick();
    now_ms += 60000;
    core.Tick();
    EXPECT_EQ(core.heartbeats(), 1u);
    EXPECT_EQ(seen,
              (std::vector<std::optional<std::vector<Event>>>{
                  BatchOf(0, 1).events, stores, stores, std::nullopt, std::nullopt, std::nullopt}));
    if (hashes_only) continue;
    const auto entries = AllOf(core);
    ASSERT_EQ(entries.size(), 6u);
    EXPECT_EQ(*entries[1].payload, payload);
    EXPECT_EQ(*entries[3].payload, kGarbage);
    EXPECT_EQ(*entries[4].payload, kUnknownEvent);
  }
}

}  // namespace
}  // namespace kvcast::stream
