// The manager reports gauges, the histogram of allocation sizes, the counter of the reuse filter,
// and the number of evictable slots. The reuse filter stores only keys with enough lookups.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/offload_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(Gauges, UsageIsTheShareThatCannotBeEvicted) {
  TestOffload offload(Pages(4));
  offload.Prepare({1, 2});
  EXPECT_EQ(offload.manager().TakeStats().usage, 0.5);
  offload.Prepare({3, 4});
  EXPECT_EQ(offload.manager().TakeStats().usage, 1.0);
  offload.Complete({1, 2});
  EXPECT_EQ(offload.manager().TakeStats().usage, 0.5);
  offload.Complete({3, 4});
  EXPECT_EQ(offload.manager().TakeStats().usage, 0.0);
}

TEST(Gauges, WithoutCapacityTheyAreZero) {
  TestOffload offload(Pages(0));
  EXPECT_EQ(offload.Prepare({1}), std::nullopt);
  const OffloadStats stats = offload.manager().TakeStats();
  EXPECT_EQ(stats.usage, 0.0);
  EXPECT_EQ(stats.write_usage, 0.0);
  EXPECT_EQ(stats.read_usage, 0.0);
}

TEST(Gauges, WritesAndReadsAreCountedSeparately) {
  TestOffload offload(Pages(4));
  offload.Store({1});
  offload.Prepare({2, 3});
  offload.Load({1});
  OffloadStats stats = offload.manager().TakeStats();
  EXPECT_EQ(stats.write_usage, 0.5);
  EXPECT_EQ(stats.read_usage, 0.25);
  EXPECT_EQ(stats.usage, 0.75);
  offload.Complete({2, 3}, false);
  stats = offload.manager().TakeStats();
  EXPECT_EQ(stats.write_usage, 0.0);
  EXPECT_EQ(stats.usage, 0.25);
}

TEST(AllocationSizes, CountOnlyNewChunks) {
  TestOffload offload(Pages(4));
  offload.Store({1, 2});
  offload.Store({1, 2, 3});
  const AllocationSizes sizes = offload.manager().TakeStats().allocation_sizes;
  EXPECT_EQ(sizes.count, 2);
  EXPECT_EQ(sizes.sum, 3);
  EXPECT_EQ(sizes.counts[0], 1);  // size 1
  EXPECT_EQ(sizes.counts[1], 1);  // size 2
  EXPECT_EQ(offload.manager().TakeStats().allocation_sizes.count, 0);
}

TEST(AllocationSizes, AreRecordedWhereTheEvictionFailsToo) {
  TestOffload offload(Pages(4));
  EXPECT_EQ(offload.Prepare({1, 2, 3, 4, 5}), std::nullopt);
  const AllocationSizes sizes = offload.manager().TakeStats().allocation_sizes;
  EXPECT_EQ(sizes.count, 1);
  EXPECT_EQ(sizes.sum, 5);
}

TEST(AllocationSizes, AStoreWithoutNewChunksIsNoSample) {
  TestOffload offload(Pages(4));
  offload.Store({1});
  offload.Store({1});
  EXPECT_EQ(offload.manager().TakeStats().allocation_sizes.count, 1);
}

OffloadConfig Reused(int64_t threshold, int64_t tracker, bool compatible) {
  OffloadConfig config = Pages(8);
  config.store_threshold = threshold;
  config.max_tracker_size = tracker;
  config.compatible = compatible;
  return config;
}

class ReuseFilterTest : public ::testing::Test {
 protected:
  ReuseFilterTest() : offload_(Reused(2, 3, true)) {}
  void LookUpTwoThenOne() {
    for (const int64_t key : {1, 2}) offload_.Lookup(key);
    first_ = offload_.Store({1, 2});
    offload_.Lookup(1);
    second_ = offload_.Store({1, 2});
  }

  TestOffload offload_;
  std::optional<Stored> first_;
  std::optional<Stored> second_;
};

TEST_F(ReuseFilterTest, Threshold2StoresOnlyKeysThatWereLookedUpTwice) {
  LookUpTwoThenOne();
  EXPECT_EQ(first_, (Stored{{}, {}, {}}));
  EXPECT_EQ(second_, (Stored{{1}, {0}, {}}));
}

TEST_F(ReuseFilterTest, AFullTrackerDropsTheOldestKeyAndItsCount) {
  LookUpTwoThenOne();
  for (const int64_t key : {3, 4}) offload_.Lookup(key);
  EXPECT_THAT(offload_.manager().Inspect().lookup_counts,
              ElementsAre(Pair(Key(1), 2), Pair(Key(3), 1), Pair(Key(4), 1)));
  offload_.Lookup(2);
  EXPECT_EQ(offload_.Store({2}), (Stored{{}, {}, {}}));
}

TEST(ReuseFilter, WithoutLookupsNothingIsStoredAndAllIsCounted) {
  TestOffload offload(Reused(2, 3, true));
  EXPECT_EQ(offload.Store({1, 2, 3}), (Stored{{}, {}, {}}));
  EXPECT_EQ(offload.manager().TakeStats().stores_skipped, 3);
  EXPECT_EQ(offload.manager().TakeStats().stores_skipped, 0);
}

TEST(ReuseFilter, ThresholdsBelow2StoreEverything) {
  for (const int64_t threshold : {0, 1}) {
    TestOffload offload(Reused(threshold, 3, false));
    EXPECT_EQ(offload.Store({1}), (Stored{{1}, {0}, {}}));
    EXPECT_THAT(offload.manager().Inspect().lookup_counts, IsEmpty());
  }
}

TEST(ReuseFilter, ARequestThatAsksEveryStepCountsOnce) {
  TestOffload offload(Reused(2, 100, false));
  for (int step = 0; step < 5; ++step) {
    for (const uint64_t request : {1, 1, 1}) offload.Lookup(7, request);
  }
  EXPECT_EQ(offload.Store({7}), (Stored{{}, {}, {}}));
  offload.Lookup(7, 2);
  EXPECT_EQ(offload.Store({7}), (Stored{{7}, {0}, {}}));
}

TEST(ReuseFilter, TwoRequestsThatTakeTurnsCountTwice) {
  TestOffload offload(Reused(3, 100, false));
  for (int step = 0; step < 5; ++step) {
    for (const uint64_t request : {1, 2}) offload.Lookup(7, request);
  }
  EXPECT_THAT(offload.manager().Inspect().lookup_counts, ElementsAre(Pair(Key(7), 2)));
}

TEST(ReuseFilter, AFinishedRequestMayCountAgainUnderItsNumber) {
  TestOffload offload(Reused(2, 100, false));
  offload.Lookup(7, 1);
  offload.manager().FinishRequest(OffloadRequestId(1));
  offload.Lookup(7, 1);
  EXPECT_EQ(offload.Store({7}), (Stored{{7}, {0}, {}}));
}

int64_t Evictable(TestOffload& offload) { return offload.manager().Inspect().evictable_slots; }

TEST(EvictableCounter, FollowsEveryTransition) {
  TestOffload offload(Pages(4));
  offload.Prepare({1, 2, 3});
  EXPECT_EQ(Evictable(offload), 0);
  offload.Complete({1, 2, 3});
  EXPECT_EQ(Evictable(offload), 3);
  offload.Load({1});
  EXPECT_EQ(Evictable(offload), 2);
  offload.Load({1});
  EXPECT_EQ(Evictable(offload), 2);
  offload.EndLoad({1});
  EXPECT_EQ(Evictable(offload), 2);
  offload.EndLoad({1});
  EXPECT_EQ(Evictable(offload), 3);
  EXPECT_TRUE(offload.Prepare({4, 5, 6}));
  EXPECT_EQ(Evictable(offload), 1);
  offload.Complete({4, 5, 6}, false);
  EXPECT_EQ(Evictable(offload), 1);
  offload.manager().Reset();
  EXPECT_EQ(Evictable(offload), 0);
}

TEST(EvictableCounter, WithAllChunksInUseAStoreFails) {
  TestOffload offload(Pages(4));
  offload.Store({1, 2, 3});
  offload.Load({1, 2, 3});
  EXPECT_EQ(offload.Prepare({4, 5}), std::nullopt);
}

}  // namespace
}  // namespace kvcast::offload
