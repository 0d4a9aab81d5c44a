// The status of a publisher names the batches that its ring holds. A publisher with too many blocks
// or copies has no digests.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/publisher_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace kvcast::stream {
namespace {

// The maximum number of hashes of an event, and the number of such events in a part of a snapshot.
constexpr uint64_t kHashesOfEvent = 65536;
constexpr uint32_t kEventsOfBatch = 16;

// Stores `blocks` blocks. The first block has no parent and the number `first`; the number of each
// further block is greater by `step`.
Event StoreFrom(uint64_t first, uint64_t blocks, uint64_t step = 1) {
  BlockStored stored;
  for (uint64_t i = 0; i < blocks; ++i) {
    stored.block_hashes.push_back(BlockHash::FromUnsigned(first + i * step));
  }
  stored.block_size = 16;
  stored.medium = "GPU";
  return stored;
}

Payload PayloadWith(std::vector<Event> events) {
  std::vector<uint8_t> payload;
  EventBatch batch;
  batch.events = std::move(events);
  EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
  return std::make_shared<const std::vector<uint8_t>>(std::move(payload));
}

TEST(PublisherState, TheStatusHasTheNumbersThatTheRingHolds) {
  ReplayRing ring(/*max_batches=*/3, SIZE_MAX);
  PublisherState state(residency::Epoch(), ring, kDefaultDialect, /*data_parallel_rank=*/0);
  EXPECT_EQ(state.Status(false).first_held, 0u);
  EXPECT_EQ(state.Status(false).next_seq, 0u);
  for (int i = 0; i < 5; ++i) ring.Append(EventBatch());
  const residency::PublisherStatus status = state.Status(false);
  EXPECT_EQ(status.next_seq, 5u);
  EXPECT_EQ(status.first_held, 2u);
  EXPECT_TRUE(status.has_digests);
}

struct SmallPublisherState : ::testing::Test {
  static PublisherState MakeState(ReplayRing& ring) {
    return {residency::Epoch(),
            ring,
            kDefaultDialect,
            /*data_parallel_rank=*/0,
            /*answer_challenge=*/{},
            /*repeats_are_refreshes=*/false,
            /*max_blocks=*/10};
  }
  bool HasDigestsAfter(std::vector<Event> events) {
    ring.Append(PayloadWith(std::move(events)));
    return state.Status(false).has_digests;
  }

  ReplayRing ring{/*max_batches=*/100, SIZE_MAX};
  PublisherState state = MakeState(ring);
};

TEST_F(SmallPublisherState, TooManyBlocksEndTheDigestsOfTheEpoch) {
  EXPECT_TRUE(HasDigestsAfter({StoreFrom(1, 10)}));
  EXPECT_FALSE(state.too_large());
  EXPECT_FALSE(HasDigestsAfter({StoreFrom(11, 1)}));
  EXPECT_TRUE(state.too_large());
  StateSnapshot snapshot = state.Snapshot(residency::BucketMask().set());
  EXPECT_FALSE(snapshot.Write());
  EXPECT_TRUE(snapshot.parts.empty());
  EXPECT_FALSE(HasDigestsAfter({AllBlocksCleared()}));
  EXPECT_FALSE(HasDigestsAfter({StoreFrom(1, 1)}));
  EXPECT_EQ(state.Status(false).next_seq, 4u);
}

TEST_F(SmallPublisherState, ManyCopiesOfOneBlockEndTheDigests) {
  EXPECT_TRUE(HasDigestsAfter({StoreFrom(1, 10, /*step=*/0)}));
  EXPECT_FALSE(HasDigestsAfter({StoreFrom(1, 1)}));
  EXPECT_TRUE(state.too_large());
}

TEST_F(SmallPublisherState, TwoCopiesOfEachBlockAreNotTooMany) {
  EXPECT_TRUE(HasDigestsAfter({StoreFrom(1, 10)}));
  EXPECT_TRUE(HasDigestsAfter({StoreFrom(1, 10)}));
  EXPECT_FALSE(HasDigestsAfter({StoreFrom(1, 1)}));
}

// A snapshot lists all copies of a block before the next block.
TEST_F(SmallPublisherState, AStateIsRestoredIfTheCopiesOfOneBlockComeFirst) {
  const Payload many = PayloadWith(std::vector<Event>(11, StoreFrom(1, 1)));
  const Payload others = PayloadWith({StoreFrom(2, 9)});
  ring.Append(others);
  ring.Append(many);
  PublishedState published{state.Status(false), {many, others}};
  ASSERT_TRUE(published.status.has_digests);
  ReplayRing next_ring{/*max_batches=*/1, SIZE_MAX};
  next_ring.StartAt(2);
  PublisherState next = MakeState(next_ring);
  ASSERT_TRUE(next.Restore(published).ok());
  EXPECT_EQ(next.Status(false).Totals(), published.status.Totals());
}

// The state has more copies than SnapshotReader reads by default.
TEST(PublisherState, AStateThatIsTooLargeIsRestoredWithoutDigests) {
  constexpr uint32_t kParts = 17;
  const Payload part =
      PayloadWith(std::vector<Event>(kEventsOfBatch, StoreFrom(1, kHashesOfEvent)));
  PublishedState published;
  published.status.next_seq = 7;
  published.status.has_digests = true;
  published.parts.assign(kParts, part);
  ResidencyDigest digest;
  for (uint64_t i = 1; i <= kHashesOfEvent; ++i) {
    digest.Add(Tier::kGpu, 0, BlockHash::FromUnsigned(i), kParts * kEventsOfBatch);
  }
  published.status.groups.push_back({digest.Totals()[0], std::nullopt});
  ReplayRing ring{/*max_batches=*/1, SIZE_MAX};
  ring.StartAt(7);
  PublisherState state(residency::Epoch(), ring, kDefaultDialect, /*data_parallel_rank=*/0);
  const kvcast::Status restored = state.Restore(published);
  ASSERT_TRUE(restored.ok()) << restored.message();
  EXPECT_FALSE(state.Status(false).has_digests);
  EXPECT_TRUE(state.too_large());
  EXPECT_EQ(state.Status(false).next_seq, 7u);
}

}  // namespace
}  // namespace kvcast::stream
