// A step stores the right chunks. Blocks have 4 tokens. Chunks have one block, or the number of
// blocks that the test passes to Config.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<OffloadJob> StoresOf(const OffloadPlan& plan) { return plan.stores; }

TEST(Stores, OnlyChunksThatTheManagerAcceptsAreCopied) {
  TestEngine engine(Config({Full()}, 3));
  engine.Stored(engine.Add(12, 12));
  TestRequest& request = engine.Add(36, 12);
  engine.Match(request);
  const auto stores = StoresOf(engine.Run(request, 36));
  ASSERT_THAT(stores, SizeIs(1));
  EXPECT_EQ(engine.PositionsOf(stores[0], request), (Positions{3, 4, 5, 6, 7, 8}));
  EXPECT_THAT(stores[0].slots, SizeIs(2));
}

// Host memory has the first and the last of three chunks.
TEST(Stores, OnlyTheMiddleChunkIsCopiedAndDecodingTouchesNothing) {
  TestEngine engine(Config({Full()}, 3));
  TestRequest& ends = engine.Add(36);
  engine.Match(ends);
  engine.Run(ends, 24);
  engine.Complete(false);
  engine.Run(ends, 12);
  engine.Complete();
  TestRequest& begins = engine.AddCopy(ends);
  begins.cache.prompt_tokens = 12;
  begins.cache.tokens.resize(12);
  begins.cache.chain.resize(3);
  engine.Stored(begins);
  ASSERT_EQ(engine.scheduler().manager().num_chunks(), 2);

  TestRequest& request = engine.AddCopy(ends);
  engine.Match(request);
  engine.calls.Take();
  const auto stores = StoresOf(engine.Run(request, 36));
  ASSERT_THAT(stores, SizeIs(1));
  EXPECT_EQ(engine.PositionsOf(stores[0], request), (Positions{3, 4, 5}));
  EXPECT_THAT(engine.calls.Take(), ElementsAre("prepare_store 3: 1", "touch 3"));
  engine.Complete();
  engine.calls.Take();
  EXPECT_THAT(engine.Decode(request, 11), IsEmpty());
  EXPECT_THAT(engine.calls.Take(), IsEmpty());
}

TEST(Stores, StepsWithoutANewFullChunkDoNotTouch) {
  TestEngine engine(Config({Full()}, 3));
  TestRequest& request = engine.Stored(engine.Add(36));
  engine.calls.Take();
  EXPECT_THAT(engine.Decode(request, 11), IsEmpty());
  EXPECT_THAT(engine.calls.Take(), IsEmpty());
  EXPECT_THAT(engine.Decode(request, 1), SizeIs(1));
  EXPECT_THAT(engine.calls.Take(),
              ElementsAre("prepare_store 1: 1", "touch 4", "complete_store 1"));
}

TEST(Stores, AChunkWithoutRoomIsOfferedAgainInTheNextStep) {
  TestEngine engine(Config({Full()}, 1, 1));
  TestRequest& holder = engine.Add(4);
  engine.Match(holder);
  engine.Run(holder, 4);  // its store holds the only slot
  TestRequest& request = engine.Add(4);
  engine.Match(request);
  EXPECT_THAT(engine.Run(request, 4).stores, IsEmpty());
  EXPECT_EQ(engine.scheduler().InspectRequest(request.id)->next_stored_chunk, (Positions{0}));
  engine.Sample(request);
  EXPECT_THAT(engine.Run(request, 1).stores, IsEmpty());
  EXPECT_EQ(engine.scheduler().TakeStats().allocation_failures, 2);
  engine.Complete();
  engine.Sample(request);
  EXPECT_THAT(engine.Run(request, 1).stores, SizeIs(1));
}

TEST(Stores, WithoutRoomThePromptsBlockFailsOnceAndAgainAtTheEnd) {
  TestEngine engine(Config({Full()}, 1, 0));
  TestRequest& request = engine.Add(4);
  engine.Match(request);
  engine.Run(request, 4);
  engine.Sample(request);
  engine.Finish(request);
  engine.Step();
  EXPECT_EQ(engine.scheduler().TakeStats().allocation_failures, 2);
  EXPECT_EQ(engine.scheduler().num_requests(), 0);
}

TEST(Stores, TheBlockThatTheLastComputedTokenFillsIsStoredAfterTheEnd) {
  TestEngine engine(Config({Full()}));
  TestRequest& fills = engine.Add(3);
  TestRequest& leaves_room = engine.Add(2);
  for (TestRequest* request : {&fills, &leaves_room}) {
    engine.Match(*request);
    engine.Schedule(*request, std::ssize(request->cache.tokens));
  }
  EXPECT_THAT(engine.Step().stores, IsEmpty());
  engine.Sample(fills);
  engine.Sample(leaves_room);
  engine.Schedule(fills, 1);
  engine.Schedule(leaves_room, 1);
  const auto stores = StoresOf(engine.Step());
  ASSERT_THAT(stores, SizeIs(1));
  EXPECT_EQ(stores[0].request, fills.id);
  for (TestRequest* request : {&fills, &leaves_room}) engine.Finish(*request);
  EXPECT_THAT(engine.Step().stores, IsEmpty());
  engine.Complete();
  EXPECT_EQ(engine.scheduler().num_requests(), 0);
}

TEST(Stores, FullGroupsOfTwoBlockSizesAreStoredWhenEachHasAChunk) {
  TestEngine engine(Config({Full(12), Full(16)}));
  TestRequest& request = engine.Add(25);
  engine.Match(request);
  auto stores = StoresOf(engine.Run(request, 25));
  ASSERT_THAT(stores, SizeIs(1));
  EXPECT_EQ(engine.PositionsOf(stores[0], request, 0), (Positions{0, 1}));
  EXPECT_EQ(engine.PositionsOf(stores[0], request, 1), (Positions{0}));
  engine.Complete();
  std::map<int64_t, std::vector<Positions>> by_length;
  for (int64_t tokens = 26; tokens <= 48; ++tokens) {
    for (const OffloadJob& job : engine.Decode(request, 1)) {
      by_length[tokens] = {engine.PositionsOf(job, request, 0),
                           engine.PositionsOf(job, request, 1)};
    }
  }
  using ::testing::Pair;
  using List = std::vector<Positions>;
  EXPECT_THAT(by_length, ElementsAre(Pair(32, List{{}, {1}}), Pair(36, List{{2}, {}}),
                                     Pair(48, List{{3}, {2}})));
}

TEST(Stores, OfASmallWindowHaveOnlyBlocksThatALoadCanReach) {
  // Loads end at multiples of 16 tokens. At these ends, the window needs two blocks of 4 tokens.
  TestEngine engine(Config({Full(16), Window(8)}));
  TestRequest& request = engine.Add(32);
  engine.Match(request);
  const auto stores = StoresOf(engine.Run(request, 32));
  ASSERT_THAT(stores, SizeIs(1));
  EXPECT_EQ(engine.PositionsOf(stores[0], request, 0), (Positions{0, 1}));
  EXPECT_EQ(engine.PositionsOf(stores[0], request, 1), (Positions{2, 3, 6, 7}));
  engine.Complete();
  TestRequest& again = engine.AddCopy(request);
  engine.Sample(again);
  EXPECT_EQ(engine.Match(again), 32);
  ASSERT_TRUE(engine.Load(again, 32).ok());
  const OffloadJob load = engine.Step().loads.at(0);
  EXPECT_EQ(engine.PositionsOf(load, again, 1), (Positions{6, 7}));
}

TEST(Stores, BlocksThatAWindowLostWhileStoresFailedAreNotStored) {
  TestEngine engine(Config({Window(16)}, 1, 4));
  TestRequest& holder = engine.Add(16);
  engine.Match(holder);
  engine.Run(holder, 16);  // holds all slots until its copy ends
  TestRequest& request = engine.Add(16);
  engine.Match(request);
  EXPECT_THAT(engine.Run(request, 16).stores, IsEmpty());
  const std::vector<BlockId> before = request.tables[0];
  engine.Sample(request);
  engine.Schedule(request, 1);
  EXPECT_THAT(engine.Step().stores, IsEmpty());
  engine.Complete();
  // Another request gets two blocks that the window released.
  TestRequest& other = engine.Add(8);
  engine.Match(other);
  engine.Schedule(other, 7, {before[0].value, before[1].value});
  engine.Sample(request);
  engine.Schedule(request, 1);
  const auto stores = StoresOf(engine.Step());
  const auto of_request = std::find_if(stores.begin(), stores.end(), [&](const OffloadJob& job) {
    return job.request == request.id;
  });
  ASSERT_NE(of_request, stores.end());
  EXPECT_EQ(engine.PositionsOf(*of_request, request), (Positions{2, 3}));
}

TEST(Stores, ByTheRequestLevelPolicyLoadedChunksAreOfferedAgain) {
  for (const auto policy : {OffloadPolicy::kRequestLevel, OffloadPolicy::kChunkLevel}) {
    OffloadSchedulerConfig config = Config({Full()}, 3);
    config.policy = policy;
    TestEngine engine(config);
    engine.Stored(engine.Add(12, 12));
    TestRequest& request = engine.Add(24, 12);
    ASSERT_EQ(engine.Match(request), 12);
    ASSERT_TRUE(engine.Load(request, 12).ok());
    engine.Step();
    engine.Complete();
    engine.calls.Take();
    request.computed = 12;
    engine.Run(request, 12);
    const bool all = policy == OffloadPolicy::kRequestLevel;
    EXPECT_THAT(engine.calls.Take(), Contains(all ? "prepare_store 2: 1" : "prepare_store 1: 1"));
  }
}

TEST(Stores, EndWhereMaxOffloadTokensSays) {
  const std::vector<std::pair<std::optional<int64_t>, Positions>> rows = {
      {std::nullopt, {0, 1, 2, 3, 4, 5, 6, 7, 8}}, {0, {}}, {24, {0, 1, 2, 3, 4, 5}}};
  for (const auto& [limit, expected] : rows) {
    TestEngine engine(Config({Full()}, 3));
    TestRequest& request = engine.Add(36, 0, {.max_offload_tokens = limit});
    engine.Match(request);
    const auto stores = StoresOf(engine.Run(request, 36));
    EXPECT_EQ(stores.empty() ? Positions() : engine.PositionsOf(stores[0], request), expected);
  }
}

TEST(Stores, OfPromptsAloneHaveNoSampledTokens) {
  OffloadSchedulerConfig config = Config({Full()}, 3);
  config.prompt_only = true;
  TestEngine engine(config);
  TestRequest& request = engine.Stored(engine.Add(24));
  EXPECT_THAT(engine.calls.Take(), Contains("prepare_store 2: 2"));
  EXPECT_THAT(engine.Decode(request, 48), IsEmpty());
  EXPECT_THAT(engine.calls.Take(), IsEmpty());
}

TEST(Stores, OfEagleGroupsKeepBackTheLastSampledChunk) {
  TestEngine engine(Config({Full(), Eagle(Window(8))}));
  TestRequest& request = engine.Add(12);
  engine.Match(request);
  auto stores = StoresOf(engine.Run(request, 12));
  engine.Complete();
  const auto more = engine.Decode(request, 4);
  stores.insert(stores.end(), more.begin(), more.end());
  Positions plain;
  Positions eagle;
  for (const OffloadJob& job : stores) {
    for (const int64_t position : engine.PositionsOf(job, request, 0)) plain.push_back(position);
    for (const int64_t position : engine.PositionsOf(job, request, 1)) eagle.push_back(position);
  }
  EXPECT_EQ(plain, (Positions{0, 1, 2, 3}));
  EXPECT_EQ(eagle, (Positions{0, 1, 2}));
}

TEST(Stores, OfAnEagleGroupsOneBlockPromptAreMade) {
  TestEngine engine(Config({Eagle(Full())}));
  TestRequest& request = engine.Add(4);
  engine.Match(request);
  EXPECT_THAT(engine.Run(request, 4).stores, SizeIs(1));
}

TEST(Stores, OfEagleGroupsHaveNoHoleWhereAPromptIsComputedInTwoSteps) {
  TestEngine engine(Config({Eagle(Full())}));
  TestRequest& request = engine.Add(1024);
  engine.Match(request);
  Positions stored;
  for (const int64_t tokens : {1000, 24}) {
    for (const OffloadJob& job : StoresOf(engine.Run(request, tokens))) {
      for (const int64_t position : engine.PositionsOf(job, request)) stored.push_back(position);
    }
    engine.Complete();
  }
  ASSERT_THAT(stored, SizeIs(256));
  for (int64_t i = 0; i < 256; ++i) EXPECT_EQ(stored[static_cast<size_t>(i)], i);
}

TEST(Stores, OfAPromptsEndInsideABlockTakeTheCopiedState) {
  OffloadSchedulerConfig config = Config({Full(16), Mamba(16, MambaMode::kAlign)});
  TestEngine engine(config);
  TestRequest& request = engine.Add(30);
  engine.Match(request);
  engine.Run(request, 16);
  engine.Complete();
  engine.Schedule(request, 12);
  const OffloadStep::Tail tail{request.id, GroupIdx(1), BlockId(99), 28};
  const auto stores = StoresOf(engine.Step({}, {tail}));
  ASSERT_THAT(stores, SizeIs(1));
  const BlockId source = request.tables[0][1];
  EXPECT_THAT(stores[0].gpu_blocks, ElementsAre(source, BlockId(99)));
  EXPECT_THAT(stores[0].group_sizes, ElementsAre(1, 1));
  EXPECT_THAT(stores[0].block_indices, ElementsAre(1, 1));
  std::vector<BlockId> fenced;
  for (const auto& [block, jobs] : engine.scheduler().FencedBlocks()) fenced.push_back(block);
  EXPECT_THAT(fenced, ElementsAre(source, BlockId(99)));

  engine.Complete();
  TestRequest& again = engine.AddCopy(request);
  EXPECT_EQ(engine.Match(again), 28);
  ASSERT_TRUE(engine.Load(again, 28).ok());
  const OffloadJob load = engine.Step().loads.at(0);
  EXPECT_EQ(engine.PositionsOf(load, again, 0), (Positions{0, 1}));
  EXPECT_EQ(engine.PositionsOf(load, again, 1), (Positions{1}));
}

TEST(Stores, WithoutTheEndInsideABlockThePrefixStopsAtTheLastState) {
  TestEngine engine(Config({Full(16), Mamba(16, MambaMode::kAlign)}));
  TestRequest& request = engine.Stored(engine.Add(30));
  TestRequest& again = engine.AddCopy(request);
  EXPECT_EQ(engine.Match(again), 16);
}

}  // namespace
}  // namespace kvcast::offload
