// Ends, aborts and preemptions of requests, and resets. GPU blocks are fenced while jobs copy them,
// and jobs are flushed before another request writes to their blocks.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Jobs = std::vector<OffloadJobId>;

TEST(Lifecycle, AQueuedRequestThatIsAbortedStoresNothingAndIsForgotten) {
  TestEngine engine(Config({Full()}));
  TestRequest& running = engine.Stored(engine.Add(16));
  TestRequest& queued = engine.Add(16);
  engine.Finish(queued, true);
  engine.Sample(running);
  EXPECT_THAT(engine.Run(running, 1).stores, IsEmpty());
  EXPECT_EQ(engine.scheduler().num_requests(), 1);
}

TEST(Lifecycle, APreemptedRequestsStoresAreFlushedAndItsReturnLoadsThem) {
  TestEngine engine(Config({Full()}, 3));
  TestRequest& request = engine.Add(24);
  engine.Match(request);
  engine.Run(request, 24);
  engine.Sample(request, 12);
  engine.Run(request, 12);
  const Jobs in_flight = engine.scheduler().JobsInFlight();
  EXPECT_THAT(in_flight, SizeIs(2));
  EXPECT_EQ(engine.Step({request.id}).flush, in_flight);
  engine.Complete();
  EXPECT_THAT(engine.scheduler().FencedBlocks(), IsEmpty());
  engine.Sample(request);
  ASSERT_EQ(engine.Match(request), 36);
  ASSERT_TRUE(engine.Load(request, 36).ok());
  const OffloadJob load = engine.Step().loads.at(0);
  EXPECT_EQ(engine.PositionsOf(load, request), (Positions{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  engine.Complete();
  request.computed = 36;
  engine.Sample(request, 11);
  const OffloadPlan& plan = engine.Run(request, 12);
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_EQ(engine.PositionsOf(plan.stores[0], request), (Positions{9, 10, 11}));
}

TEST(Lifecycle, WhileItsOwnStoreRunsAPreemptedRequestIsToldToWaitWithoutALookup) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(13);
  engine.Match(request);
  engine.Run(request, 13);
  engine.Step({request.id});
  engine.calls.Take();
  EXPECT_EQ(engine.Match(request), std::nullopt);
  EXPECT_THAT(engine.calls.Take(), IsEmpty());
  engine.Complete();
  EXPECT_EQ(engine.Match(request), 12);
}

TEST(Lifecycle, TheEndIsReportedToTheManagerOnceAndBeforeTheLastStoresComplete) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(8);
  engine.Match(request);
  engine.Run(request, 8);
  engine.calls.Take();
  engine.Finish(request);
  engine.Step();
  engine.Complete();
  engine.Step();
  EXPECT_THAT(engine.calls.Take(), ElementsAre("finished 1", "complete_store 2"));
  EXPECT_EQ(engine.scheduler().num_requests(), 0);
  EXPECT_FALSE(engine.scheduler().has_pending_work());
}

TEST(Lifecycle, ARequestThatIsAbortedWhileItLoadsIsKeptUntilTheLoadEnds) {
  TestEngine engine(Config({Full()}));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  engine.Step();
  EXPECT_TRUE(engine.Finish(request, true)) << "its blocks are being written";
  EXPECT_THAT(engine.Step().stores, IsEmpty());
  EXPECT_TRUE(engine.scheduler().has_pending_work());
  EXPECT_TRUE(engine.scheduler().InspectRequest(request.id).has_value());
  EXPECT_THAT(engine.Complete().loaded, ElementsAre(request.id));
  EXPECT_FALSE(engine.scheduler().InspectRequest(request.id).has_value());
}

TEST(Lifecycle, AJobEndsWhenTheLastOfThreeWorkersHasReportedIt) {
  OffloadSchedulerConfig config = Config({Full()});
  config.num_workers = 3;
  TestEngine engine(config);
  TestRequest& request = engine.Add(8);
  engine.Match(request);
  const OffloadJobId job = engine.Run(request, 8).stores.at(0).id;
  engine.calls.Take();
  engine.Acknowledge(job, 1);
  EXPECT_THAT(engine.calls.Take(), IsEmpty());
  engine.Acknowledge(job, 2);
  EXPECT_THAT(engine.calls.Take(), ElementsAre("complete_store 2"));
}

TEST(Lifecycle, AFinishedRequestsBlockGivenToANewRequestFlushesItsStore) {
  for (const bool load : {false, true}) {
    TestEngine engine(Config({Full()}));
    TestRequest& other = engine.Stored(engine.Add(9));
    TestRequest& request = engine.Add(8);
    engine.Match(request);
    const OffloadJobId job = engine.Run(request, 8).stores.at(0).id;
    engine.Finish(request);
    const uint32_t block = request.tables[0][1].value;
    if (load) {
      TestRequest& next = engine.AddCopy(other);
      ASSERT_EQ(engine.Match(next), 8);
      next.tables = {{BlockId(900), BlockId(block)}};
      ASSERT_TRUE(engine.scheduler().UpdateAfterAlloc(next.id, 8, next.tables).ok());
    } else {
      TestRequest& next = engine.Add(8);
      engine.Match(next);
      engine.Schedule(next, 8, {block});
    }
    EXPECT_EQ(engine.Step().flush, Jobs{job}) << (load ? "load" : "prefill");
  }
}

TEST(Lifecycle, TheLastStoreOfAFinishedRequestIsFlushedIfItsBlockIsReusedInTheSameStep) {
  OffloadSchedulerConfig config = Config({Full()}, 1, 2);
  TestEngine engine(config);
  TestRequest& holder = engine.Add(8);
  engine.Match(holder);
  engine.Run(holder, 8);
  TestRequest& request = engine.Add(8);
  engine.Match(request);
  engine.Run(request, 8);  // no room
  engine.Complete();
  engine.Finish(request);
  TestRequest& next = engine.Add(3);
  engine.Match(next);
  engine.Schedule(next, 3, {request.tables[0][0].value});
  const OffloadPlan& plan = engine.Step();
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_EQ(plan.flush, Jobs{plan.stores[0].id});
}

TEST(Lifecycle, WindowBlocksAreFencedFromTheStoreOnFullOnesFromTheEnd) {
  TestEngine engine(Config({Full(), Window(8)}));
  TestRequest& request = engine.Add(4);
  engine.Match(request);
  const OffloadJobId job = engine.Run(request, 4).stores.at(0).id;
  const BlockId full = request.tables[0][0];
  const BlockId window = request.tables[1][0];
  using Fence = std::pair<BlockId, Jobs>;
  EXPECT_THAT(engine.scheduler().FencedBlocks(), ElementsAre(Fence{window, {job}}));
  engine.Finish(request);
  EXPECT_THAT(engine.scheduler().FencedBlocks(),
              ElementsAre(Fence{full, {job}}, Fence{window, {job}}));
  TestRequest& next = engine.Add(4);
  engine.Match(next);
  engine.Schedule(next, 4, {full.value});
  EXPECT_EQ(engine.Step().flush, Jobs{job});
  engine.Complete();
  TestRequest& last = engine.Add(4);
  engine.Match(last);
  engine.Finish(next);
  engine.Step();
  EXPECT_THAT(engine.scheduler().FencedBlocks(), IsEmpty());
}

TEST(Lifecycle, AResetFlushesRunningJobsAndStartsFromTheBeginning) {
  TestEngine engine(Config({Full()}));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  EXPECT_EQ(engine.scheduler().Reset().code(), StatusCode::kFailedPrecondition);
  const OffloadJobId load = engine.Step().loads.at(0).id;
  engine.calls.Take();
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  EXPECT_THAT(engine.calls.Take(), ElementsAre("reset"));
  EXPECT_THAT(engine.scheduler().JobsInFlight(), IsEmpty());
  EXPECT_THAT(engine.scheduler().FencedBlocks(), IsEmpty());
  EXPECT_EQ(engine.scheduler().InspectRequest(stored.id)->next_stored_chunk, (Positions{0}));
  EXPECT_EQ(engine.Step().flush, Jobs{load});
  // The load read the bytes before another store could take their slots.
  EXPECT_THAT(engine.Acknowledge(load).loaded, ElementsAre(request.id));
  EXPECT_EQ(engine.Acknowledge(load).loaded.size(), 0u);
  EXPECT_EQ(engine.scheduler().TakeStats().unknown_completions, 1);
  EXPECT_EQ(engine.scheduler().manager().num_chunks(), 0);
}

// Starts a load of the request, and resets the scheduler. Returns the load.
OffloadJobId ResetDuringALoad(TestEngine& engine, TestRequest& request) {
  EXPECT_EQ(engine.Match(request), 12);
  EXPECT_TRUE(engine.Load(request, 12).ok());
  const OffloadJobId load = engine.Step().loads.at(0).id;
  EXPECT_TRUE(engine.scheduler().Reset().ok());
  return load;
}

TEST(Lifecycle, ARequestKeepsTheBlocksOfALoadThatRunsDuringAReset) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.AddCopy(engine.Stored(engine.Add(13)));
  const OffloadJobId load = ResetDuringALoad(engine, request);
  EXPECT_TRUE(engine.Finish(request)) << "the load still writes the blocks";
  EXPECT_THAT(engine.Acknowledge(load).loaded, ElementsAre(request.id));
}

TEST(Lifecycle, ALoadThatRunsDuringAResetMayFail) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.AddCopy(engine.Stored(engine.Add(13)));
  const OffloadJobId load = ResetDuringALoad(engine, request);
  EXPECT_THAT(engine.Acknowledge(load, 1, /*success=*/false).failed, ElementsAre(request.id));
  EXPECT_EQ(engine.scheduler().TakeStats().failed_loads, 1);
  engine.calls.Take();
  EXPECT_EQ(engine.Match(request), 0);
  EXPECT_THAT(engine.calls.Take(), Not(Contains("lookup"))) << "another load could fail, too";
}

TEST(Lifecycle, AResetDropsAFinishedRequestWithARunningStoreAndReportsItsEndOnce) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(8);
  engine.Match(request);
  const OffloadJobId job = engine.Run(request, 8).stores.at(0).id;
  engine.Finish(request);
  engine.calls.Take();
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  EXPECT_EQ(engine.scheduler().num_requests(), 0);
  EXPECT_EQ(engine.Step().flush, Jobs{job});
  engine.Acknowledge(job);
  EXPECT_THAT(engine.calls.Take(), ElementsAre("finished 1", "reset"));
}

TEST(Lifecycle, UnknownRequestsAndJobsAreIgnored) {
  TestEngine engine(Config({Full()}));
  const OffloadRequestId unknown(99);
  EXPECT_EQ(engine.scheduler().MatchedTokens(unknown, 0, 0).tokens, 0);
  EXPECT_FALSE(engine.scheduler().RequestFinished(unknown, 0, false));
  EXPECT_FALSE(engine.scheduler().InspectRequest(unknown).has_value());
  const OffloadStep::Scheduled scheduled{.request = unknown, .scheduled_tokens = 4};
  const OffloadPlan& plan =
      engine.scheduler().BuildStep({std::span(&scheduled, 1), std::span(&unknown, 1), {}});
  EXPECT_THAT(plan.stores, IsEmpty());
  engine.Acknowledge(OffloadJobId(5));
  EXPECT_EQ(engine.scheduler().TakeStats().unknown_completions, 1);
}

// A checkpoint is a state inside the tokens of its block. The block table does not show this, so
// the scheduler would store the checkpoint under the key of another prefix.
TEST(Lifecycle, PrefillCheckpointsMustBeHandedOver) {
  GroupSpec states = Mamba(4, MambaMode::kAlign);
  states.prefill_checkpoint_blocks = 1;
  states.prefill_checkpoint_alignment = 2;
  OffloadSchedulerConfig config = Config({Full(), states});
  EXPECT_EQ(OffloadScheduler::Create(config).status().code(), StatusCode::kInvalidArgument);
  config.states_handed_over = true;
  EXPECT_TRUE(OffloadScheduler::Create(config).ok());
}

TEST(Lifecycle, TwoRequestsCannotHaveOneId) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(4);
  EXPECT_EQ(engine.scheduler().AddRequest(request.id, request.cache).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::offload
