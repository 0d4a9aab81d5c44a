// The scheduler follows the rules of vLLM's connector from v0.32 on. The tests use the rules of
// v0.33. Several tests show that earlier releases lack a rule.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

OffloadSchedulerConfig V033(OffloadSchedulerConfig config) {
  config.rules = EngineRules::kV033;
  return config;
}

TEST(V033, LookupsAndStoresTouchNothing) {
  TestEngine engine(V033(Config({Full(), Window(8)})));
  TestRequest& request = engine.Stored(engine.Add(16));
  TestRequest& again = engine.AddCopy(request, true);
  EXPECT_EQ(engine.Match(again), 12);
  EXPECT_THAT(engine.calls.Take(), Not(Contains(StartsWith("touch"))));
}

// There is room for four chunks. The loaded chunks of a request count as used when the request
// finishes. They are then younger than chunks that another request stored in the meantime.
TEST(V033, TheLoadsOfARequestCountAsUsesWhenItFinishes) {
  for (const bool finishes : {false, true}) {
    TestEngine engine(V033(Config({Full()}, 1, 4)));
    TestRequest& first = engine.Stored(engine.Add(8));
    engine.Finish(first);
    engine.Step();
    TestRequest& reader = engine.AddCopy(first);
    ASSERT_EQ(engine.Match(reader), 8);
    ASSERT_TRUE(engine.Load(reader, 8).ok());
    engine.Step();
    engine.Complete();
    TestRequest& second = engine.Stored(engine.Add(8));
    engine.Finish(second);
    engine.Step();
    if (finishes) {
      engine.Finish(reader);
      engine.Step();
    }
    engine.Stored(engine.Add(8));
    TestRequest& asks = engine.AddCopy(first);
    EXPECT_EQ(engine.Match(asks), finishes ? 8 : 0);
  }
}

TEST(V033, AGroupOutsidePrefixCachingIsNotMovedAndTheOthersKeepTheirIndex) {
  GroupSpec scratch = Window(8);
  scratch.prefix_cacheable = false;
  OffloadSchedulerConfig config = V033(Config({scratch, Full()}));
  config.memory.chunk_bytes = {1, 4096};  // its size has no meaning
  TestEngine engine(config);
  TestRequest& request = engine.Add(9);
  engine.Match(request);
  const OffloadPlan& plan = engine.Run(request, 9);
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_THAT(plan.stores[0].group_sizes, ElementsAre(2));
  EXPECT_THAT(plan.stores[0].gpu_blocks, ElementsAre(request.tables[1][0], request.tables[1][1]));
  engine.Complete();
  for (const Event& event : engine.scheduler().TakeEvents()) {
    EXPECT_EQ(std::get<BlockStored>(event).group_idx, 1);
  }
  TestRequest& again = engine.AddCopy(request);
  ASSERT_EQ(engine.Match(again), 8);
  ASSERT_TRUE(engine.Load(again, 8).ok());
  const OffloadPlan& load = engine.Step();
  ASSERT_THAT(load.loads, SizeIs(1));
  EXPECT_THAT(load.loads[0].gpu_blocks, ElementsAre(again.tables[1][0], again.tables[1][1]));
}

TEST(V033, TheLastChunkOfADraftHeadsGroupIsStoredWhenTheRequestHasFinished) {
  for (const auto rules : {EngineRules::kMain2026August, EngineRules::kV033}) {
    OffloadSchedulerConfig config = Config({Eagle(Full())});
    config.rules = rules;
    TestEngine engine(config);
    TestRequest& request = engine.Stored(engine.Add(4));
    engine.Decode(request, 4);
    EXPECT_EQ(engine.scheduler().manager().num_chunks(), 1) << "the newest chunk is kept back";
    engine.Finish(request);
    EXPECT_THAT(engine.Step().stores, SizeIs(rules == EngineRules::kV033 ? 1 : 0));
  }
}

TEST(V033, AFinishedRequestDoesNotStoreTheSlotOfItsLastToken) {
  for (const auto rules : {EngineRules::kMain2026August, EngineRules::kV033}) {
    OffloadSchedulerConfig config = AsVllm(Config({Full()}));
    config.rules = rules;
    TestEngine engine(config);
    TestRequest& request = engine.Stored(engine.Add(7));
    engine.Sample(request);  // fills the second block, but is not computed
    engine.Finish(request);
    EXPECT_THAT(engine.Step().stores, SizeIs(rules == EngineRules::kV033 ? 0 : 1));
  }
}

TEST(V033, MaxLoadTokensBoundALoad) {
  for (const auto rules : {EngineRules::kMain2026August, EngineRules::kV033}) {
    OffloadSchedulerConfig config = Config({Full()});
    config.rules = rules;
    TestEngine engine(config);
    engine.Stored(engine.Add(16, 16));
    TestRequest& capped = engine.Add(17, 16, {.max_load_tokens = 11});
    EXPECT_EQ(engine.Match(capped), rules == EngineRules::kV033 ? 8 : 16);
  }
}

TEST(V033, AWindowsChunksFollowTheRetentionInterval) {
  OffloadSchedulerConfig config = V033(Config({Full(16), Window(8)}));
  config.layout.retention_interval = 0;
  TestEngine engine(config);
  TestRequest& request = engine.Add(49);
  request.cache.shared_prefix_boundary = 20;
  engine.Match(request);
  const OffloadPlan& plan = engine.Run(request, 49);
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_EQ(engine.PositionsOf(plan.stores[0], request, 0), (Positions{0, 1, 2}));
  // The blocks before 16 tokens (the shared prefix, rounded down to chunks of 16) and before 48
  // tokens (the prompt, rounded down).
  EXPECT_EQ(engine.PositionsOf(plan.stores[0], request, 1), (Positions{2, 3, 10, 11}));
}

// A request is storing a chunk. From v0.32 on, the lookup of another request finds this chunk
// pending, and describes the chunk for its stored event.
TEST(V033, APendingChunkIsDescribedByTheLookup) {
  for (const auto rules : {EngineRules::kMain2026August, EngineRules::kV033}) {
    OffloadSchedulerConfig config = AsVllm(Config({Full()}, 1, 1));
    config.rules = rules;
    TestEngine engine(config);
    TestRequest& request = engine.Stored(engine.Add(5));
    engine.Finish(request);
    engine.Step();
    engine.Stored(engine.Add(4));  // evicts the chunk
    TestRequest& again = engine.AddCopy(request);
    engine.Match(again);
    engine.Run(again, 5);             // evicts the other chunk, and its store is in flight
    engine.scheduler().TakeEvents();  // drops descriptions of removed keys
    TestRequest& asks = engine.AddCopy(request);
    EXPECT_EQ(engine.Match(asks), std::nullopt);
    engine.Complete();
    const auto events = engine.scheduler().TakeEvents();
    ASSERT_THAT(events, SizeIs(1));
    const int64_t block_size = std::get<BlockStored>(events[0]).block_size;
    EXPECT_EQ(block_size, rules == EngineRules::kV033 ? 4 : 0);
  }
}

// Before v0.32, vLLM looks only at the last block of a chunk.
TEST(V033, AChunkWithANullBlockIsNotStoredInTheCompatibleModeToo) {
  for (const auto rules : {EngineRules::kMain2026August, EngineRules::kV033}) {
    OffloadSchedulerConfig config = AsVllm(Config({Window(8)}, 3));
    config.rules = rules;
    TestEngine engine(config);
    TestRequest& request = engine.Add(24);
    engine.Match(request, 20);
    engine.Allocate(request, 20);  // the table is 0 0 0 1 2: the window does not need blocks 0 to 2
    ASSERT_EQ(request.tables[0][2].value, 0u);
    request.tables[0][3] = BlockId(0);
    const OffloadPlan& plan = engine.Run(request, 4);
    EXPECT_THAT(plan.stores, SizeIs(rules == EngineRules::kV033 ? 0 : 1));
  }
}

class WithinStep : public ::testing::Test {
 protected:
  // A step may load two chunks of 4096 bytes.
  static OffloadSchedulerConfig Budget() {
    OffloadSchedulerConfig config = V033(Config({Full()}));
    config.sync_load_budget_bytes = 2 * 4096;
    return config;
  }
  OffloadMatch Ask(TestRequest& request) {
    engine.Match(request);
    return engine.scheduler().MatchedTokens(request.id, 0, 0);
  }
  TestEngine engine{Budget()};
};

TEST_F(WithinStep, ALoadThatFitsIsMadeBeforeTheStepAndItsEndIsNotReported) {
  engine.Stored(engine.Add(8, 8));
  TestRequest& request = engine.Add(9, 8);
  const OffloadMatch match = Ask(request);
  EXPECT_EQ(match.tokens, 8);
  EXPECT_TRUE(match.within_step);
  ASSERT_TRUE(engine.Load(request, 8).ok());
  request.computed = 8;
  engine.Schedule(request, 1);
  const OffloadPlan& plan = engine.Step();
  ASSERT_THAT(plan.loads, SizeIs(1));
  EXPECT_THAT(plan.before_step, ElementsAre(plan.loads[0].id));
  std::vector<LateLoad> late;
  engine.scheduler().TakeLateLoads(1'000'000, late);
  EXPECT_THAT(late, IsEmpty()) << "the step waits for the load";
  EXPECT_THAT(engine.Complete().loaded, IsEmpty());
  EXPECT_THAT(engine.Step().before_step, IsEmpty());
}

TEST_F(WithinStep, ALoadLeavesOneTokenToCompute) {
  engine.Stored(engine.Add(8, 8));
  EXPECT_EQ(Ask(engine.Add(8, 8)).tokens, 7);
}

TEST_F(WithinStep, AllLoadsOfAStepShareTheBudget) {
  EXPECT_FALSE(Ask(engine.AddCopy(engine.Stored(engine.Add(13)))).within_step)
      << "three chunks exceed the budget";
  TestRequest& first = engine.AddCopy(engine.Stored(engine.Add(5)));
  TestRequest& second = engine.AddCopy(engine.Stored(engine.Add(9)));
  ASSERT_TRUE(Ask(first).within_step);
  ASSERT_TRUE(Ask(second).within_step);
  ASSERT_TRUE(engine.Load(first, 4).ok());
  EXPECT_EQ(Ask(second).tokens, 8);
  EXPECT_FALSE(Ask(second).within_step) << "the budget has one chunk left";
  engine.Step();
  EXPECT_TRUE(Ask(second).within_step) << "each step has its own budget";
}

TEST_F(WithinStep, AFailedLoadIsReported) {
  engine.Stored(engine.Add(8, 8));
  TestRequest& request = engine.Add(9, 8);
  ASSERT_TRUE(Ask(request).within_step);
  ASSERT_TRUE(engine.Load(request, 8).ok());
  engine.Step();
  EXPECT_THAT(engine.Complete(false).failed, ElementsAre(request.id));
}

// The step computes the third chunk of the request from the two chunks of the failed load.
TEST_F(WithinStep, ChunksThatAreComputedOverAFailedLoadAreNotAnnounced) {
  for (const bool load_first : {true, false}) {
    TestEngine made(Budget());
    made.Stored(made.Add(8, 8));
    made.scheduler().TakeEvents();
    TestRequest& request = made.Add(13, 8);
    ASSERT_EQ(made.Match(request), 8);
    ASSERT_TRUE(made.Load(request, 8).ok());
    request.computed = 8;
    made.Schedule(request, 5);
    const OffloadPlan& plan = made.Step();
    ASSERT_THAT(plan.before_step, SizeIs(1));
    ASSERT_THAT(plan.stores, SizeIs(1));
    std::vector<OffloadCompletion> ended = {{plan.loads.at(0).id, 1, false},
                                            {plan.stores[0].id, 1, true}};
    if (!load_first) std::swap(ended[0], ended[1]);
    OffloadArrivals arrivals;
    made.scheduler().OnCompletions(ended, arrivals);
    EXPECT_THAT(arrivals.failed, ElementsAre(request.id));
    EXPECT_THAT(made.scheduler().TakeEvents(), IsEmpty());
    EXPECT_EQ(made.scheduler().TakeStats().failed_stores, 1);
    EXPECT_EQ(made.Match(made.AddCopy(request)), 8);
  }
}

TEST_F(WithinStep, AfterAFailedLoadThatAResetDroppedTheStoresFailToo) {
  engine.Stored(engine.Add(8, 8));
  TestRequest& request = engine.Add(13, 8);
  ASSERT_TRUE(Ask(request).within_step);
  ASSERT_TRUE(engine.Load(request, 8).ok());
  request.computed = 8;
  engine.Schedule(request, 4);
  const OffloadJobId load = engine.Step().loads.at(0).id;
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  const OffloadPlan& plan = engine.Run(request, 1);
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_THAT(engine.Acknowledge(load, 1, false).failed, ElementsAre(request.id));
  engine.Acknowledge(plan.stores[0].id);
  EXPECT_EQ(engine.scheduler().manager().num_chunks(), 0);
}

TEST_F(WithinStep, AFinishedRequestDoesNotWaitForItsLoadAndStoresNothingIfTheLoadFails) {
  engine.Stored(engine.Add(8, 8));
  TestRequest& request = engine.Add(13, 8);
  ASSERT_TRUE(Ask(request).within_step);
  ASSERT_TRUE(engine.Load(request, 8).ok());
  request.computed = 8;
  engine.Schedule(request, 3);
  const OffloadJobId load = engine.Step().loads.at(0).id;
  request.computed = 12;
  EXPECT_FALSE(engine.Finish(request)) << "the end of the load is not reported";
  EXPECT_THAT(engine.Acknowledge(load, 1, false).failed, IsEmpty());
  EXPECT_THAT(engine.Step().stores, IsEmpty());
  EXPECT_EQ(engine.scheduler().num_requests(), 1);
}

TEST_F(WithinStep, WithoutABudgetNoLoadIsWithinAStep) {
  TestEngine plain(V033(Config({Full()})));
  plain.Stored(plain.Add(8, 8));
  TestRequest& request = plain.Add(9, 8);
  plain.Match(request);
  EXPECT_FALSE(plain.scheduler().MatchedTokens(request.id, 0, 0).within_step);
}

// Full attention and states in blocks of 16 tokens, and hash units of 4 tokens.
OffloadSchedulerConfig HandedOver(int64_t blocks_per_chunk = 1) {
  OffloadSchedulerConfig config =
      V033(Config({Full(16), Mamba(16, MambaMode::kAlign)}, blocks_per_chunk));
  config.states_handed_over = true;
  return config;
}
std::vector<OffloadJob> StoresOfStates(const OffloadPlan& plan) {
  std::vector<OffloadJob> jobs;
  for (const OffloadJob& job : plan.stores) {
    if (job.group_sizes == std::vector<int64_t>{0, 1}) jobs.push_back(job);
  }
  return jobs;
}

TEST(V033, AStateThatIsHandedOverIsStoredAtOnceFromItsOwnBlock) {
  TestEngine engine(HandedOver());
  TestRequest& request = engine.Add(40);
  engine.Match(request);
  engine.Schedule(request, 32);
  const OffloadPlan& plan = engine.Step({}, {{request.id, GroupIdx(1), BlockId(99), 32}});
  const auto states = StoresOfStates(plan);
  ASSERT_THAT(states, SizeIs(1));
  EXPECT_THAT(states[0].gpu_blocks, ElementsAre(BlockId(99)));
  EXPECT_THAT(states[0].block_indices, ElementsAre(0, 1));
  EXPECT_THAT(plan.stores, SizeIs(2));
  std::vector<BlockId> fenced;
  for (const auto& [block, jobs] : engine.scheduler().FencedBlocks()) fenced.push_back(block);
  EXPECT_THAT(fenced, ElementsAre(BlockId(99))) << "the block leaves the table early";
  engine.Complete();
  TestRequest& again = engine.AddCopy(request, true);
  EXPECT_EQ(engine.Match(again), 32);
}

TEST(V033, WithoutBeingHandedOverNoStateIsStored) {
  TestEngine engine(HandedOver());
  TestRequest& request = engine.Stored(engine.Add(40));
  TestRequest& again = engine.AddCopy(request, true);
  EXPECT_EQ(engine.Match(again), 0);
  OffloadSchedulerConfig config = AsVllm(HandedOver());
  config.states_handed_over = false;  // the compatible mode implies true
  TestEngine as_vllm(config);
  TestRequest& other = as_vllm.Stored(as_vllm.Add(40));
  TestRequest& copy = as_vllm.AddCopy(other, true);
  EXPECT_EQ(as_vllm.Match(copy), 0);
}

TEST(V033, AStateThatIsHandedOverLiesAtTheEndOfItsChunk) {
  TestEngine engine(HandedOver(3));
  TestRequest& request = engine.Add(50);
  engine.Match(request);
  engine.Schedule(request, 48);
  const auto states = StoresOfStates(engine.Step({}, {{request.id, GroupIdx(1), BlockId(99), 48}}));
  ASSERT_THAT(states, SizeIs(1));
  EXPECT_THAT(TestEngine::PlacesOf(states[0], 1, 3), SizeIs(1));
  EXPECT_THAT(TestEngine::PlacesOf(states[0], 1, 3).at(BlockId(99)), ::testing::EndsWith("/2"));
}

TEST(V033, StatesThatCannotBeUsedAreNotStored) {
  OffloadSchedulerConfig config = HandedOver();
  config.prompt_only = true;
  TestEngine engine(config);
  TestRequest& request = engine.Add(40, 0, {.max_offload_tokens = 33});
  engine.Match(request);
  engine.Schedule(request, 40);
  const OffloadRequestId id = request.id;
  const GroupIdx state(1);
  EXPECT_THAT(StoresOfStates(engine.Step({}, {{id, state, BlockId(0), 32},
                                              {id, state, BlockId(99), 0},
                                              {id, state, BlockId(99), -16},
                                              {id, state, BlockId(99), 48},
                                              {id, GroupIdx(0), BlockId(99), 32},
                                              {id, GroupIdx(7), BlockId(99), 32},
                                              {OffloadRequestId(9), state, BlockId(99), 32}})),
              IsEmpty());
}

// The request has a prompt of 60 tokens. Another request stored the first 33 of these tokens. If
// `loads` is true, the request loads 16 tokens. It computes up to `computed` tokens, and leaves a
// copy of its state at 56 tokens.
struct DraftedTail {
  explicit DraftedTail(int64_t computed, bool loads = true)
      : engine(V033(Config({Eagle(Full(16)), Mamba(16, MambaMode::kAlign)}))) {
    TestRequest& first = engine.Stored(engine.Add(33));
    request = &engine.AddCopy(first);
    engine.Sample(*request, 27);
    request->cache.prompt_tokens = 60;
    EXPECT_EQ(engine.Match(*request), 16);
    if (loads) {
      EXPECT_TRUE(engine.Load(*request, 16).ok());
      engine.Step();
      engine.Complete();
      request->computed = 16;
    }
    engine.Schedule(*request, computed - request->computed);
    const OffloadStep::Tail tail{request->id, GroupIdx(1), BlockId(99), 56};
    for (const OffloadJob& job : engine.Step({}, {tail}).stores) {
      if (job.group_sizes == std::vector<int64_t>{1, 1} && job.gpu_blocks[1] == BlockId(99)) {
        stored = job;
      }
    }
    engine.Complete();
  }
  int64_t Match(int64_t tokens) {
    TestRequest& again = engine.AddCopy(*request);
    again.cache.tokens.resize(static_cast<size_t>(tokens));
    again.cache.chain.resize(static_cast<size_t>(tokens / 4));
    again.cache.prompt_tokens = tokens;
    return engine.Match(again).value_or(-1);
  }

  TestEngine engine;
  TestRequest* request = nullptr;
  std::optional<OffloadJob> stored;
};

TEST(V033, BesideADraftHeadAnEndInsideABlockIsKeptOneHashUnitFurther) {
  DraftedTail run(60);
  ASSERT_TRUE(run.stored);
  EXPECT_THAT(run.stored->gpu_blocks, ElementsAre(run.request->tables[0][3], BlockId(99)));
  EXPECT_THAT(run.stored->block_indices, ElementsAre(3, 3));
  EXPECT_EQ(run.Match(60), 56) << "after the chunk that the draft head gives up";
  EXPECT_EQ(run.Match(59), 32) << "the prompt lacks the next hash unit";
  TestRequest& again = run.engine.AddCopy(*run.request);
  EXPECT_EQ(run.engine.Match(again), 56);
  ASSERT_TRUE(run.engine.Load(again, 56).ok());
  const OffloadJob load = run.engine.Step().loads.at(0);
  EXPECT_EQ(run.engine.PositionsOf(load, again, 0), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(run.engine.PositionsOf(load, again, 1), (Positions{3}));
}

TEST(V033, BesideADraftHeadAnEndIsKeptOnceTheTokensThatTheHeadReadsAreComputed) {
  EXPECT_FALSE(DraftedTail(58).stored);
  EXPECT_EQ(DraftedTail(58).Match(60), 32);
}

TEST(V033, BesideADraftHeadARequestThatLoadedNothingKeepsNoEnd) {
  DraftedTail run(60, false);
  EXPECT_FALSE(run.stored);
  EXPECT_EQ(run.Match(60), 32);
}

// A reset drops the jobs in flight. Until the flush of the next step has ended these jobs, they
// still write to their slots.
TEST(V033, AResetHasWorkUntilTheStepThatFlushesItsJobs) {
  TestEngine engine(V033(Config({Full()})));
  TestRequest& request = engine.Add(16);
  engine.Match(request);
  const OffloadJobId job = engine.Run(request, 16).stores.at(0).id;
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  EXPECT_TRUE(engine.scheduler().has_pending_work());
  EXPECT_THAT(engine.Step().flush, ElementsAre(job));
  EXPECT_FALSE(engine.scheduler().has_pending_work());
}

}  // namespace
}  // namespace kvcast::offload
