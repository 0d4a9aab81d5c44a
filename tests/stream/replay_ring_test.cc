// The ring numbers batches, keeps the newest batches within its bounds, and passes each batch to
// the sender once.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/replay_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace kvcast::stream {
namespace {

Payload PayloadOf(size_t bytes) {
  return std::make_shared<const std::vector<uint8_t>>(std::vector<uint8_t>(bytes, 7));
}

std::vector<uint64_t> Seqs(const std::vector<RingEntry>& entries) {
  std::vector<uint64_t> seqs;
  for (const RingEntry& entry : entries) seqs.push_back(entry.seq);
  return seqs;
}

std::vector<uint64_t> Held(ReplayRing& ring, uint64_t start, uint64_t end = UINT64_MAX,
                           size_t limit = 100) {
  std::vector<RingEntry> entries;
  ring.Read(start, end, limit, entries);
  return Seqs(entries);
}

std::vector<uint64_t> Taken(ReplayRing& ring, size_t limit) {
  std::vector<RingEntry> entries;
  EXPECT_TRUE(ring.TakeUnsent(limit, entries));
  return Seqs(entries);
}

using Numbers = std::vector<uint64_t>;

TEST(ReplayRing, NumbersBatchesFromZero) {
  ReplayRing ring(10, 1000);
  EXPECT_EQ(ring.Append(PayloadOf(1)), 0u);
  EXPECT_EQ(ring.Append(PayloadOf(1)), 1u);
  EXPECT_EQ(ring.next_seq(), 2u);
}

TEST(ReplayRing, DropsOldestWhenRingIsFull) {
  ReplayRing ring(3, 1000);
  for (int i = 0; i < 5; ++i) ring.Append(PayloadOf(1));
  EXPECT_EQ(Held(ring, 0), (Numbers{2, 3, 4}));
}

TEST(ReplayRing, DropsOldestWhenTheByteLimitIsExceeded) {
  ReplayRing ring(100, 10);
  for (int i = 0; i < 4; ++i) ring.Append(PayloadOf(4));
  EXPECT_EQ(Held(ring, 0), (Numbers{2, 3}));
}

TEST(ReplayRing, KeepsTheNewestHoweverLarge) {
  ReplayRing ring(100, 10);
  ring.Append(PayloadOf(4));
  ring.Append(PayloadOf(50));
  EXPECT_EQ(Held(ring, 0), (Numbers{1}));
}

TEST(ReplayRing, ReadsFromOldestHeldWhenStartIsGone) {
  ReplayRing ring(3, 1000);
  for (int i = 0; i < 5; ++i) ring.Append(PayloadOf(1));
  EXPECT_EQ(Held(ring, 1), (Numbers{2, 3, 4}));
  EXPECT_EQ(Held(ring, 4), (Numbers{4}));
  EXPECT_EQ(Held(ring, 5), Numbers{});
  EXPECT_EQ(Held(ring, UINT64_MAX), Numbers{});
}

TEST(ReplayRing, ReadsUpToEndAndLimit) {
  ReplayRing ring(10, 1000);
  for (int i = 0; i < 8; ++i) ring.Append(PayloadOf(1));
  EXPECT_EQ(Held(ring, 2, /*end=*/5), (Numbers{2, 3, 4}));
  EXPECT_EQ(Held(ring, 2, /*end=*/8, /*limit=*/2), (Numbers{2, 3}));
}

TEST(ReplayRing, PassesEachBatchToTheSenderOnce) {
  ReplayRing ring(10, 1000);
  for (int i = 0; i < 3; ++i) ring.Append(PayloadOf(1));
  EXPECT_EQ(Taken(ring, 2), (Numbers{0, 1}));
  EXPECT_EQ(Taken(ring, 2), (Numbers{2}));
  EXPECT_EQ(Held(ring, 0), (Numbers{0, 1, 2}));
}

TEST(ReplayRing, CountsBatchesThatLeaveBeforeTheyAreSent) {
  ReplayRing ring(3, 1000);
  for (int i = 0; i < 4; ++i) ring.Append(PayloadOf(1));
  EXPECT_EQ(Taken(ring, 1), (Numbers{1}));
  for (int i = 0; i < 3; ++i) ring.Append(PayloadOf(1));
  EXPECT_EQ(Taken(ring, 10), (Numbers{4, 5, 6}));
  EXPECT_EQ(ring.counters().unsent_dropped, 3u);
}

TEST(ReplayRing, HasNothingForTheSenderWhenAllIsSent) {
  ReplayRing ring(10, 1000);
  std::vector<RingEntry> none;
  EXPECT_FALSE(ring.TakeUnsent(10, none));
  ring.Append(PayloadOf(1));
  EXPECT_EQ(Taken(ring, 10), (Numbers{0}));
  EXPECT_FALSE(ring.TakeUnsent(10, none));
  EXPECT_TRUE(none.empty());
}

std::vector<uint64_t> ReadOn(ReplayRing& ring, size_t limit) {
  std::vector<RingEntry> entries;
  ring.ReadOn(limit, entries);
  return Seqs(entries);
}

TEST(ReplayRing, ReaderGetsBatchesThatHaveLeftTheRing) {
  ReplayRing ring(2, 1000);
  ring.KeepForReader();
  for (int i = 0; i < 5; ++i) ring.Append(PayloadOf(1));
  EXPECT_EQ(ReadOn(ring, 2), (Numbers{0, 1}));
  ring.Append(PayloadOf(1));
  EXPECT_EQ(ReadOn(ring, 3), (Numbers{2, 3, 4}));
  EXPECT_EQ(ReadOn(ring, 10), (Numbers{5}));
  EXPECT_EQ(ReadOn(ring, 10), Numbers{});
}

TEST(ReplayRing, BatchesKeptForTheReaderAreBounded) {
  ReplayRing ring(1, 10);
  ring.KeepForReader();
  for (int i = 0; i < 5; ++i) ring.Append(PayloadOf(4));
  EXPECT_EQ(ReadOn(ring, 10), (Numbers{3, 4})) << "the first three batches exceed the byte limit";
}

EventBatch Events(double ts) {
  EventBatch batch;
  batch.ts = ts;
  batch.events.emplace_back(BlockRemoved{.block_hashes = {BlockHash(7)}});
  return batch;
}

std::vector<uint8_t> Encoded(double ts) {
  std::vector<uint8_t> payload;
  EXPECT_TRUE(EncodeBatch(Events(ts), Dialect::kVllm8, payload).ok());
  return payload;
}

TEST(ReplayRing, EventsAreEncodedForEveryCaller) {
  ReplayRing ring(10, 1000, Dialect::kVllm8);
  EXPECT_EQ(ring.Append(Events(0)), 0u);
  EXPECT_EQ(ring.Append(PayloadOf(3)), 1u);
  EXPECT_EQ(ring.Append(Events(2)), 2u);
  EXPECT_EQ(ring.next_seq(), 3u);
  std::vector<RingEntry> read;
  ring.Read(0, 3, 10, read);
  ASSERT_EQ(Seqs(read), (Numbers{0, 1, 2}));
  EXPECT_EQ(*read[0].payload, Encoded(0));
  EXPECT_EQ(*read[1].payload, *PayloadOf(3));
  EXPECT_EQ(*read[2].payload, Encoded(2));
  ring.Append(Events(3));
  EXPECT_EQ(ring.counters().bytes, 3 * Encoded(0).size() + 3);
  ring.Append(Events(4));
  std::vector<RingEntry> taken;
  while (ring.TakeUnsent(10, taken)) {
  }
  EXPECT_EQ(Seqs(taken), (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(*taken[4].payload, Encoded(4));
}

TEST(ReplayRing, BoundsHoldForEventsThatWait) {
  ReplayRing ring(3, 1000);
  ring.KeepForReader();
  for (int i = 0; i < 5; ++i) ring.Append(Events(i));
  EXPECT_EQ(ring.first_held(), 2u);
  EXPECT_EQ(ring.counters().unsent_dropped, 2u);
  EXPECT_EQ(ReadOn(ring, 10), (Numbers{0, 1, 2, 3, 4}));
}

TEST(ReplayRing, ARefusedBatchIsNeitherSentNorReplayed) {
  ReplayRing ring(10, 1000, Dialect::kVllm8);
  ring.KeepForReader();
  ring.Append(Events(0));
  EXPECT_EQ(ring.AppendRefused(Events(1)), 1u);
  EXPECT_EQ(ring.AppendRefused(std::nullopt), 2u);
  ring.Append(Events(3));
  EXPECT_EQ(Held(ring, 0), (Numbers{0, 3}));
  EXPECT_EQ(Held(ring, 1, /*end=*/3), Numbers{});
  EXPECT_EQ(Held(ring, 0, UINT64_MAX, /*limit=*/2), (Numbers{0, 3}));
  EXPECT_EQ(Taken(ring, 2), (Numbers{0, 3}));
  EXPECT_EQ(ReadOn(ring, 10), (Numbers{0, 1, 3}))
      << "the reader gets the batches whose events are known";
  EXPECT_EQ(ring.counters().batches, 4u);
  EXPECT_EQ(ring.counters().bytes, 2 * Encoded(0).size());
}

TEST(ReplayRing, RefusedBatchesThatLeaveTheRingDoNotCountAsUnsent) {
  ReplayRing ring(2, 1000);
  ring.KeepForReader();
  ring.AppendRefused(Events(0));
  ring.AppendRefused(std::nullopt);
  ring.Append(PayloadOf(1));
  ring.Append(PayloadOf(1));
  ring.Append(PayloadOf(1));
  EXPECT_EQ(ring.counters().unsent_dropped, 1u);
  EXPECT_EQ(Taken(ring, 10), (Numbers{3, 4}));
  EXPECT_EQ(ReadOn(ring, 10), (Numbers{0, 2, 3, 4}));
}

TEST(ReplayRing, AfterARefusedBatchTheSenderGoesOn) {
  ReplayRing ring(10, 1000);
  std::vector<RingEntry> taken;
  ring.AppendRefused(std::nullopt);
  while (ring.TakeUnsent(10, taken)) {
  }
  EXPECT_TRUE(taken.empty());
  ring.Append(PayloadOf(1));
  EXPECT_EQ(Taken(ring, 10), (Numbers{1}));
}

TEST(ReplayRing, AProducerThatIsFarAheadEncodesItsBatchesItself) {
  constexpr size_t kBatches = 3 * EncodeQueue::kMaxBatches;
  ReplayRing ring(kBatches, SIZE_MAX);
  for (size_t i = 0; i < kBatches; ++i) EXPECT_EQ(ring.Append(Events(static_cast<double>(i))), i);
  EXPECT_EQ(Held(ring, 0, kBatches, kBatches).size(), kBatches);
  EXPECT_EQ(ring.counters().unsent_dropped, 0u);
}

TEST(ReplayRing, ProducersSenderAndReadersDoNotDisturbEachOther) {
  constexpr uint64_t kBatches = 4000;
  ReplayRing ring(2 * kBatches, SIZE_MAX, Dialect::kVllm8);
  std::vector<RingEntry> taken;
  std::vector<double> ts_of(2 * kBatches);  // by sequence number
  std::atomic<bool> ended = false;
  const auto produce = [&](double ts) {
    for (uint64_t i = 0; i < kBatches; ++i, ++ts) {
      const bool as_bytes = i % 5 == 0;
      const auto bytes = std::make_shared<const std::vector<uint8_t>>(Encoded(ts));
      ts_of[as_bytes ? ring.Append(bytes) : ring.Append(Events(ts))] = ts;
    }
  };
  std::thread sender([&] {
    while (!ended) ring.TakeUnsent(7, taken);
    while (ring.TakeUnsent(7, taken)) {
    }
  });
  std::thread reader([&] {
    while (!ended) {
      const uint64_t end = ring.next_seq();
      EXPECT_EQ(Held(ring, 0, end, SIZE_MAX).size(), end);
    }
  });
  std::thread other(produce, 1.0 * kBatches);
  produce(0);
  other.join();
  ended = true;
  sender.join();
  reader.join();
  ASSERT_EQ(taken.size(), 2 * kBatches);
  for (uint64_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(taken[i].seq, i);
    EXPECT_EQ(*taken[i].payload, Encoded(ts_of[i]));
  }
}

TEST(EncodeQueue, GivesBatchesBackInOrder) {
  EncodeQueue queue;
  double next = 0;
  for (double ts = 0; ts < 1000; ++ts) {
    if (queue.full()) {
      EXPECT_EQ(queue.Pop().batch.ts, next++);
    }
    queue.Push({Events(ts)});
  }
  while (!queue.empty()) EXPECT_EQ(queue.Pop().batch, Events(next++));
  EXPECT_EQ(next, 1000);
}

TEST(EncodeQueue, IsFullAboveTheItemLimit) {
  EncodeQueue queue;
  EventBatch large;
  large.events.emplace_back(
      BlockStored{.token_ids = std::vector<TokenId>(EncodeQueue::kMaxItems + 1)});
  queue.Push({Events(0)});
  EXPECT_FALSE(queue.full());
  queue.Push({large});
  EXPECT_TRUE(queue.full());
  queue.Pop();
  EXPECT_TRUE(queue.full());
  queue.Pop();
  EXPECT_FALSE(queue.full());
}

}  // namespace
}  // namespace kvcast::stream
