// BlockCounts counts the announced blocks of each group in each tier.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/block_counts.h"

#include <gtest/gtest.h>

#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using testing::Batch;
using testing::Hashes;
using testing::Remove;
using testing::RemoveFrom;
using testing::Store;
using testing::StoreIn;

struct BlockCountsTest : ::testing::Test {
  void Apply(const EventBatch& batch, std::vector<size_t> left_out = {}) {
    tally.Apply(batch, left_out);
  }
  const GroupTally::InTier& In(size_t group, Tier tier) const {
    return tally.groups().at(group).tiers[static_cast<size_t>(tier)];
  }
  static AllBlocksCleared ClearOf(const char* medium) {
    AllBlocksCleared event;
    event.medium = medium;
    return event;
  }
  BlockCounts tally;
};

TEST_F(BlockCountsTest, CountsGroupsAndTiersApart) {
  Apply(Batch(Store(Hashes(1, 5), 0), Store(Hashes(1, 3), 2), StoreIn("CPU", Hashes(1, 4)),
              Remove(Hashes(1, 2), 0)));
  ASSERT_EQ(tally.groups().size(), 3u);
  EXPECT_EQ(In(0, Tier::kGpu).held, 3);
  EXPECT_EQ(In(0, Tier::kGpu).stored, 5u);
  EXPECT_EQ(In(0, Tier::kGpu).removed, 2u);
  EXPECT_EQ(In(0, Tier::kCpu).held, 4);
  EXPECT_EQ(In(1, Tier::kGpu).held, 0);
  EXPECT_EQ(In(2, Tier::kGpu).held, 3);
}

TEST_F(BlockCountsTest, NoGroupMeansGroup0AndInvalidGroupsAreNotCounted) {
  Apply(Batch(Store(Hashes(1, 2), std::nullopt), Store(Hashes(1, 2), -1),
              Store(Hashes(1, 2), kMaxGroups), Remove(Hashes(1, 1), kMaxGroups)));
  ASSERT_EQ(tally.groups().size(), 1u);
  EXPECT_EQ(In(0, Tier::kGpu).held, 2);
}

TEST_F(BlockCountsTest, EventsThatWereLeftOutAreNotCounted) {
  Apply(Batch(Store(Hashes(1, 1)), Store(Hashes(2, 10)), Store(Hashes(3, 100)),
              Store(Hashes(4, 1000))),
        {1, 2});
  EXPECT_EQ(In(0, Tier::kGpu).held, 1001);
  EXPECT_EQ(In(0, Tier::kGpu).stored, 1001u);
}

TEST_F(BlockCountsTest, RemovesOfUnknownBlocksDoNotMakeACountNegative) {
  Apply(Batch(Store(Hashes(1, 2)), Remove(Hashes(1, 5)), Store(Hashes(1, 1))));
  EXPECT_EQ(In(0, Tier::kGpu).held, 1);
  EXPECT_EQ(In(0, Tier::kGpu).removed, 5u);
}

TEST_F(BlockCountsTest, AClearAppliesToOneTierAndAllGroups) {
  Apply(Batch(Store(Hashes(1, 2), 0), Store(Hashes(1, 3), 1), StoreIn("CPU", Hashes(1, 4)),
              ClearOf("GPU")));
  EXPECT_EQ(In(0, Tier::kGpu).held, 0);
  EXPECT_EQ(In(1, Tier::kGpu).held, 0);
  EXPECT_EQ(In(0, Tier::kCpu).held, 4);
  EXPECT_EQ(In(1, Tier::kGpu).stored, 3u);
  tally.Clear();
  EXPECT_EQ(In(0, Tier::kCpu).held, 0);
}

TEST_F(BlockCountsTest, ASnapshotReplacesTheHeldCountsAndKeepsTheTotals) {
  Apply(Batch(Store(Hashes(1, 8), 0), Remove(Hashes(1, 3), 0), Store(Hashes(1, 5), 1)));
  BlockCounts snapshot;
  snapshot.Hold(Tier::kGpu, 0, 2);
  snapshot.Hold(Tier::kGpu, 0, 1);
  snapshot.Hold(Tier::kGpu, 2, 20);
  tally.Replace(snapshot);
  ASSERT_EQ(tally.groups().size(), 3u);
  EXPECT_EQ(In(0, Tier::kGpu).held, 3);
  EXPECT_EQ(In(0, Tier::kGpu).stored, 8u);
  EXPECT_EQ(In(0, Tier::kGpu).removed, 3u);
  EXPECT_EQ(In(1, Tier::kGpu).held, 0);
  EXPECT_EQ(In(2, Tier::kGpu).held, 20);
  EXPECT_EQ(In(2, Tier::kGpu).stored, 20u);
}

}  // namespace
}  // namespace kvcast::router
