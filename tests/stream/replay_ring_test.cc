// The ring numbers batches, keeps the newest within its bounds and hands each to the sender once.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/replay_ring.h"

#include <gtest/gtest.h>

#include <thread>

namespace kvcast::stream {
namespace {

Payload Of(size_t bytes) {
  return std::make_shared<const std::vector<uint8_t>>(std::vector<uint8_t>(bytes, 7));
}

std::vector<uint64_t> Seqs(const std::vector<RingEntry>& entries) {
  std::vector<uint64_t> seqs;
  for (const RingEntry& entry : entries) seqs.push_back(entry.seq);
  return seqs;
}

std::vector<uint64_t> Held(const ReplayRing& ring, uint64_t start, uint64_t end = UINT64_MAX,
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
  EXPECT_EQ(ring.Append(Of(1)), 0u);
  EXPECT_EQ(ring.Append(Of(1)), 1u);
  EXPECT_EQ(ring.next_seq(), 2u);
}

TEST(ReplayRing, DropsOldestWhenRingIsFull) {
  ReplayRing ring(3, 1000);
  for (int i = 0; i < 5; ++i) ring.Append(Of(1));
  EXPECT_EQ(Held(ring, 0), (Numbers{2, 3, 4}));
}

TEST(ReplayRing, DropsOldestWhenBytesArePassed) {
  ReplayRing ring(100, 10);
  for (int i = 0; i < 4; ++i) ring.Append(Of(4));
  EXPECT_EQ(Held(ring, 0), (Numbers{2, 3}));
}

TEST(ReplayRing, KeepsTheNewestHoweverLarge) {
  ReplayRing ring(100, 10);
  ring.Append(Of(4));
  ring.Append(Of(50));
  EXPECT_EQ(Held(ring, 0), (Numbers{1}));
}

TEST(ReplayRing, ReadsFromOldestHeldWhenStartIsGone) {
  ReplayRing ring(3, 1000);
  for (int i = 0; i < 5; ++i) ring.Append(Of(1));
  EXPECT_EQ(Held(ring, 1), (Numbers{2, 3, 4}));
  EXPECT_EQ(Held(ring, 4), (Numbers{4}));
  EXPECT_EQ(Held(ring, 5), Numbers{});
  EXPECT_EQ(Held(ring, UINT64_MAX), Numbers{});
}

TEST(ReplayRing, ReadsUpToEndAndLimit) {
  ReplayRing ring(10, 1000);
  for (int i = 0; i < 8; ++i) ring.Append(Of(1));
  EXPECT_EQ(Held(ring, 2, /*end=*/5), (Numbers{2, 3, 4}));
  EXPECT_EQ(Held(ring, 2, /*end=*/8, /*limit=*/2), (Numbers{2, 3}));
}

TEST(ReplayRing, HandsEachBatchToTheSenderOnce) {
  ReplayRing ring(10, 1000);
  for (int i = 0; i < 3; ++i) ring.Append(Of(1));
  EXPECT_EQ(Taken(ring, 2), (Numbers{0, 1}));
  EXPECT_EQ(Taken(ring, 2), (Numbers{2}));
  EXPECT_EQ(Held(ring, 0), (Numbers{0, 1, 2}));
}

TEST(ReplayRing, CountsBatchesThatLeaveBeforeTheyAreSent) {
  ReplayRing ring(3, 1000);
  for (int i = 0; i < 4; ++i) ring.Append(Of(1));
  EXPECT_EQ(Taken(ring, 1), (Numbers{1}));
  for (int i = 0; i < 3; ++i) ring.Append(Of(1));
  EXPECT_EQ(Taken(ring, 10), (Numbers{4, 5, 6}));
  EXPECT_EQ(ring.counters().unsent_dropped, 3u);
}

TEST(ReplayRing, SenderTakesTheRestAfterClose) {
  ReplayRing ring(10, 1000);
  ring.Append(Of(1));
  ring.Close();
  EXPECT_EQ(Taken(ring, 10), (Numbers{0}));
  std::vector<RingEntry> none;
  EXPECT_FALSE(ring.TakeUnsent(10, none));
}

TEST(ReplayRing, WaitingSenderWakesForBatchAndForClose) {
  ReplayRing ring(10, 1000);
  std::vector<RingEntry> entries;
  std::thread sender([&] {
    while (ring.TakeUnsent(10, entries)) {
    }
  });
  for (int i = 0; i < 100; ++i) ring.Append(Of(1));
  ring.Close();
  sender.join();
  EXPECT_EQ(entries.size() + ring.counters().unsent_dropped, 100u);
}

std::vector<uint64_t> ReadOn(ReplayRing& ring, size_t limit) {
  std::vector<RingEntry> entries;
  ring.ReadOn(limit, entries);
  return Seqs(entries);
}

TEST(ReplayRing, ReaderGetsWhatHasLeftTheRing) {
  ReplayRing ring(2, 1000);
  ring.KeepForReader();
  for (int i = 0; i < 5; ++i) ring.Append(Of(1));
  EXPECT_EQ(ReadOn(ring, 2), (Numbers{0, 1}));
  ring.Append(Of(1));
  EXPECT_EQ(ReadOn(ring, 3), (Numbers{2, 3, 4}));
  EXPECT_EQ(ReadOn(ring, 10), (Numbers{5}));
  EXPECT_EQ(ReadOn(ring, 10), Numbers{});
}

TEST(ReplayRing, WhatIsKeptForTheReaderHasABound) {
  ReplayRing ring(1, 10);
  ring.KeepForReader();
  for (int i = 0; i < 5; ++i) ring.Append(Of(4));
  EXPECT_EQ(ReadOn(ring, 10), (Numbers{3, 4})) << "the first three were too much";
}

}  // namespace
}  // namespace kvcast::stream
