// Every wait ends, except in the compatible mode. After a failed or late copy, the engine computes
// the tokens.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

OffloadSchedulerConfig WaitAtMost(int64_t ms) {
  OffloadSchedulerConfig config = Config({Full()});
  config.max_pending_ms = ms;
  return config;
}

TEST(Waits, ForAStoreThatDoesNotEndEndAtTheDeadline) {
  TestEngine engine(WaitAtMost(50));
  TestRequest& first = engine.Stored(engine.Add(13, 8));
  TestRequest& second = engine.AddCopy(first);
  engine.Sample(second, 8);
  engine.Match(second, 12);
  engine.Run(second, 9);  // the store of its chunks is in flight
  TestRequest& third = engine.AddCopy(second);
  EXPECT_EQ(engine.Match(third, 0, 1000), std::nullopt);
  EXPECT_EQ(engine.Match(third, 0, 1049), std::nullopt);
  EXPECT_EQ(engine.Match(third, 0, 1050), 12) << "loads the available chunks";
  EXPECT_EQ(engine.scheduler().TakeStats().expired_waits, 1);
}

TEST(Waits, AsInVllmNeverEnd) {
  TestEngine engine(AsVllm(WaitAtMost(50)));
  TestRequest& first = engine.Add(13);
  engine.Match(first);
  engine.Run(first, 13);
  TestRequest& second = engine.AddCopy(first);
  EXPECT_EQ(engine.Match(second, 0, 0), std::nullopt);
  EXPECT_EQ(engine.Match(second, 0, 1000000), std::nullopt);
}

TEST(Waits, ForAnothersLoadEndInALoadOfTheSameSlots) {
  TestEngine engine(WaitAtMost(50));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& first = engine.AddCopy(stored);
  TestRequest& second = engine.AddCopy(stored);
  TestRequest& third = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(first), 12);
  ASSERT_TRUE(engine.Load(first, 12).ok());
  const std::vector<SlotId> slots = engine.Step().loads.at(0).slots;
  EXPECT_EQ(engine.Match(second, 0, 10), std::nullopt);
  EXPECT_EQ(engine.Match(second, 0, 60), 12);
  ASSERT_TRUE(engine.Load(second, 12).ok());
  const OffloadPlan& plan = engine.Step();
  EXPECT_EQ(plan.loads.at(0).slots, slots);
  const OffloadJobId last = plan.loads.at(0).id;
  // The next request waits while one of the two loads runs.
  engine.Acknowledge(OffloadJobId(last.value - 1));
  EXPECT_EQ(engine.Match(third, 0, 60), std::nullopt);
  EXPECT_THAT(engine.Acknowledge(last).loaded, ElementsAre(second.id));
  EXPECT_EQ(engine.Match(third, 0, 61), 12);
}

TEST(Waits, ForARequestsOwnStoreEndInComputing) {
  TestEngine engine(WaitAtMost(50));
  TestRequest& request = engine.Add(13);
  engine.Match(request);
  engine.Run(request, 13);
  engine.Step({request.id});
  EXPECT_EQ(engine.Match(request, 0, 100), std::nullopt);
  EXPECT_EQ(engine.Match(request, 0, 150), 0);
}

TEST(Waits, EachWaitBeginsWithItsFirstLookup) {
  TestEngine engine(WaitAtMost(50));
  TestRequest& first = engine.Add(13);
  engine.Match(first);
  engine.Run(first, 13);
  TestRequest& second = engine.AddCopy(first);
  EXPECT_EQ(engine.Match(second, 0, 0), std::nullopt);
  engine.Complete();
  EXPECT_EQ(engine.Match(second, 0, 10), 12);  // answered: the wait is over
  TestRequest& more = engine.AddCopy(first);
  engine.Sample(more, 4);
  engine.Match(more, 12);
  engine.Run(more, 5);
  engine.Sample(second, 4);
  second.cache.tokens = more.cache.tokens;
  second.cache.chain = more.cache.chain;
  EXPECT_EQ(engine.Match(second, 0, 59), std::nullopt);
  EXPECT_EQ(engine.Match(second, 0, 109), 12);
}

TEST(Failures, OfALoadCostARecomputeAndAreNotTriedAgain) {
  TestEngine engine(Config({Full()}));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  engine.Step();
  const OffloadArrivals arrivals = engine.Complete(false);
  EXPECT_THAT(arrivals.failed, ElementsAre(request.id));
  EXPECT_THAT(arrivals.loaded, IsEmpty());
  EXPECT_EQ(engine.scheduler().TakeStats().failed_loads, 1);
  engine.calls.Take();
  EXPECT_EQ(engine.Match(request), 0);
  EXPECT_THAT(engine.calls.Take(), ElementsAre("touch 3"));
  engine.Run(request, 13);
  TestRequest& other = engine.AddCopy(stored);
  EXPECT_EQ(engine.Match(other), 12) << "the chunks are still readable";
  EXPECT_TRUE(engine.scheduler().manager().CheckInvariants().ok());
}

TEST(Failures, OfAStoreLeaveNoChunkAndNoEvent) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(13);
  engine.Match(request);
  engine.Run(request, 13);
  engine.Complete(false);
  EXPECT_THAT(engine.scheduler().TakeEvents(), IsEmpty());
  EXPECT_EQ(engine.scheduler().manager().num_chunks(), 0);
  EXPECT_EQ(engine.scheduler().TakeStats().failed_stores, 1);
  EXPECT_THAT(engine.scheduler().FencedBlocks(), IsEmpty());
  TestRequest& again = engine.AddCopy(request);
  EXPECT_EQ(engine.Match(again), 0);
  EXPECT_THAT(engine.Run(again, 13).stores, SizeIs(1));
}

TEST(Failures, OfOneWorkerFailTheJobWhenAllWorkersHaveReported) {
  OffloadSchedulerConfig config = Config({Full()});
  config.num_workers = 2;
  TestEngine engine(config);
  TestRequest& request = engine.Add(13);
  engine.Match(request);
  const OffloadJobId job = engine.Run(request, 13).stores.at(0).id;
  engine.Acknowledge(job, 1, false);
  EXPECT_EQ(engine.scheduler().manager().num_chunks(), 3);
  engine.Acknowledge(job, 1, true);
  EXPECT_EQ(engine.scheduler().manager().num_chunks(), 0);
}

OffloadSchedulerConfig LateAfter(int64_t ms, int64_t bytes_per_ms) {
  OffloadSchedulerConfig config = Config({Full()});
  config.late_load_ms = ms;
  config.load_bytes_per_ms = bytes_per_ms;
  return config;
}

std::vector<uint64_t> LateAt(TestEngine& engine, int64_t now_ms) {
  std::vector<LateLoad> late;
  engine.scheduler().TakeLateLoads(now_ms, late);
  std::vector<uint64_t> requests;
  for (const LateLoad& load : late) requests.push_back(load.request.value);
  return requests;
}

// Each load has 3 chunks of 4096 bytes. The expected rate is 1024 bytes per ms.
TEST(LateLoads, AreLoadsThatExceedTheExpectedTimeOfTheirBytesAndOfEarlierLoads) {
  TestEngine engine(LateAfter(50, 1024));
  TestRequest& stored = engine.Stored(engine.Add(13, 0));
  TestRequest& other = engine.Stored(engine.Add(13, 0));
  TestRequest& first = engine.AddCopy(stored);
  TestRequest& second = engine.AddCopy(other);
  ASSERT_EQ(engine.Match(first, 0, 1000), 12);
  ASSERT_TRUE(engine.Load(first, 12).ok());
  ASSERT_EQ(engine.Match(second, 0, 1000), 12);
  ASSERT_TRUE(engine.Load(second, 12).ok());
  engine.Step();
  EXPECT_THAT(LateAt(engine, 1061), IsEmpty());
  EXPECT_THAT(LateAt(engine, 1062), ElementsAre(first.id.value));
  EXPECT_THAT(LateAt(engine, 1073), IsEmpty()) << "the second load has the time of both";
  EXPECT_THAT(LateAt(engine, 1074), ElementsAre(second.id.value));
  EXPECT_EQ(engine.scheduler().TakeStats().late_loads, 2);
  engine.Complete();
}

TEST(LateLoads, DoNotExistWithTheLongestTime) {
  TestEngine engine(LateAfter(INT64_MAX, 1));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request, 0, 1000), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  engine.Step();
  EXPECT_THAT(LateAt(engine, 1000), IsEmpty());
  EXPECT_THAT(LateAt(engine, INT64_MAX - 1), IsEmpty());
  engine.Complete();
}

TEST(LateLoads, AreComputedAtOnceByTheRequestsThatWaitForThem) {
  TestEngine engine(LateAfter(50, 1 << 20));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& first = engine.AddCopy(stored);
  TestRequest& second = engine.AddCopy(stored);
  TestRequest& third = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(first, 0, 0), 12);
  ASSERT_TRUE(engine.Load(first, 12).ok());
  const OffloadJobId job = engine.Step().loads.at(0).id;
  EXPECT_EQ(engine.Match(second, 0, 49), std::nullopt);
  EXPECT_THAT(LateAt(engine, 50), ElementsAre(first.id.value));
  EXPECT_EQ(engine.Match(first, 0, 51), 0);
  EXPECT_EQ(engine.Match(second, 0, 51), 0) << "another copy would wait behind the late copy";
  engine.Run(first, 13);
  EXPECT_FALSE(engine.Finish(first)) << "its new blocks have no load";
  const OffloadArrivals arrivals = engine.Acknowledge(job);
  EXPECT_THAT(arrivals.released, ElementsAre(job));
  EXPECT_THAT(arrivals.loaded, IsEmpty());
  EXPECT_THAT(arrivals.failed, IsEmpty());
  EXPECT_EQ(engine.Match(third, 0, 60), 12) << "the chunks are still readable";
  EXPECT_TRUE(engine.scheduler().manager().CheckInvariants().ok());
}

// No other job gets slots that a late copy still reads.
TEST(LateLoads, KeepTheirSlots) {
  OffloadSchedulerConfig config = LateAfter(50, 1 << 20);
  config.memory.capacity_bytes = 3 * 4096;
  TestEngine engine(config);
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request, 0, 0), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  const OffloadJobId job = engine.Step().loads.at(0).id;
  EXPECT_THAT(LateAt(engine, 50), SizeIs(1));
  TestRequest& more = engine.Add(12);
  engine.Match(more);
  EXPECT_THAT(engine.Run(more, 12).stores, IsEmpty());
  engine.Acknowledge(job, 1, false);
  EXPECT_THAT(engine.Decode(more, 1), SizeIs(1));
}

// TakeLateLoads does not report the late load of an ended request, because this request does not
// wait. A request that needs the same chunks computes its tokens.
TEST(LateLoads, OfARequestThatEndedAreNotReported) {
  TestEngine engine(LateAfter(50, 1 << 20));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& first = engine.AddCopy(stored);
  TestRequest& second = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(first, 0, 0), 12);
  ASSERT_TRUE(engine.Load(first, 12).ok());
  const OffloadJobId job = engine.Step().loads.at(0).id;
  EXPECT_TRUE(engine.Finish(first, true));
  engine.Step();
  EXPECT_THAT(LateAt(engine, 50), IsEmpty());
  EXPECT_EQ(engine.Match(second, 0, 51), 0);
  EXPECT_THAT(engine.Acknowledge(job).loaded, ElementsAre(first.id));
  EXPECT_EQ(engine.scheduler().num_requests(), 2);
}

TEST(LateLoads, LoadsThatAResetDroppedAreReleased) {
  TestEngine engine(LateAfter(50, 1 << 20));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request, 0, 0), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  const OffloadJobId job = engine.Step().loads.at(0).id;
  EXPECT_THAT(LateAt(engine, 50), SizeIs(1));
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  EXPECT_THAT(engine.Step().flush, ElementsAre(job));
  const OffloadArrivals arrivals = engine.Acknowledge(job);
  EXPECT_THAT(arrivals.released, ElementsAre(job));
  EXPECT_THAT(arrivals.loaded, IsEmpty());
}

TEST(LateLoads, MayBecomeLateAfterAReset) {
  TestEngine engine(LateAfter(50, 1 << 20));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request, 0, 0), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  const OffloadJobId job = engine.Step().loads.at(0).id;
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  EXPECT_THAT(LateAt(engine, 49), IsEmpty());
  EXPECT_THAT(LateAt(engine, 50), ElementsAre(request.id.value));
  EXPECT_THAT(engine.Acknowledge(job).released, ElementsAre(job));
}

}  // namespace
}  // namespace kvcast::offload
