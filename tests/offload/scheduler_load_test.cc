// The scheduler looks up and loads the right chunks. Blocks have 4 tokens. Chunks have one block,
// or the number of blocks that the test passes to Config.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

OffloadJob LoadJob(TestEngine& engine, TestRequest& request, int64_t tokens) {
  EXPECT_TRUE(engine.Load(request, tokens).ok());
  return engine.Step().loads.at(0);
}

TEST(Loads, NothingIsLookedUpWhereLessThanAChunkCouldBeGained) {
  TestEngine engine(Config({Full()}, 3));
  engine.Stored(engine.Add(12, 12));
  TestRequest& request = engine.Add(12, 12);
  engine.calls.Take();
  EXPECT_EQ(engine.Match(request, 4), 0);
  EXPECT_THAT(engine.calls.Take(), ElementsAre("touch 1"));
}

TEST(Loads, AllChunksOfARequestAreTouchedAfterTheLookups) {
  TestEngine engine(Config({Full()}, 3));
  TestRequest& request = engine.Stored(engine.Add(72));
  engine.calls.Take();
  TestRequest& differs = engine.AddCopy(request, true);
  EXPECT_EQ(engine.Match(differs), 60);
  EXPECT_THAT(engine.calls.Take(),
              ElementsAre("lookup", "lookup", "lookup", "lookup", "lookup", "lookup", "touch 6"));
}

TEST(Loads, TouchTheKeysOfTheNewRequest) {
  TestEngine engine(Config({Full()}, 3));
  TestRequest& request = engine.Stored(engine.Add(72));
  TestRequest& differs = engine.AddCopy(request, true);
  engine.Match(differs);
  ASSERT_THAT(engine.calls.touched(), SizeIs(6));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(engine.calls.touched()[i].digest, differs.cache.chain[3 * i + 2]) << i;
    EXPECT_EQ(engine.calls.touched()[i].digest == request.cache.chain[3 * i + 2], i < 5) << i;
  }
}

// If the last turn of a conversation is edited, the new prompt continues from any earlier token.
// The scheduler must therefore keep the window's blocks at every position, and not only at the end.
TEST(Loads, APromptThatLeavesTheOldOneEarlierHitsUpToThere) {
  TestEngine engine(Config({Full(), Window(8)}));
  TestRequest& old = engine.Add(41, 41);
  engine.Match(old);
  for (const int64_t tokens : {12, 12, 12, 5}) {
    engine.Run(old, tokens);
    engine.Complete();
  }
  for (int64_t shared = 4; shared <= 40; shared += 4) {
    TestRequest& edited = engine.Add(60, shared);
    EXPECT_EQ(engine.Match(edited), shared);
  }
}

TEST(Loads, AHitFillsTheChunksBlocks) {
  TestEngine engine(Config({Full()}, 3));
  engine.Stored(engine.Add(24, 24));
  TestRequest& first = engine.Add(24, 12);
  EXPECT_EQ(engine.Match(first), 12);
  EXPECT_EQ(engine.PositionsOf(LoadJob(engine, first, 12), first), (Positions{0, 1, 2}));
  engine.Complete();
  TestRequest& behind_gpu = engine.Add(36, 24);
  EXPECT_EQ(engine.Match(behind_gpu, 12), 12);
  EXPECT_EQ(engine.PositionsOf(LoadJob(engine, behind_gpu, 12), behind_gpu), (Positions{3, 4, 5}));
}

TEST(Loads, AHitBehindAPartOfAChunkEntersTheChunkInTheMiddle) {
  TestEngine engine(Config({Full()}, 3));
  engine.Stored(engine.Add(24, 24));
  TestRequest& request = engine.Add(36, 24);
  EXPECT_EQ(engine.Match(request, 4), 20);
  const OffloadJob load = LoadJob(engine, request, 20);
  EXPECT_EQ(engine.PositionsOf(load, request), (Positions{1, 2, 3, 4, 5}));
  EXPECT_THAT(load.block_indices, ElementsAre(1));
  EXPECT_THAT(load.slots, SizeIs(2));
}

TEST(Loads, AFullGroupLoadsAllAndAWindowItsEnd) {
  TestEngine engine(Config({Full(), Window(8)}));
  TestRequest& stored = engine.Add(17, 17);
  engine.Stored(stored);
  TestRequest& request = engine.Add(14, 13);
  engine.calls.Take();
  EXPECT_EQ(engine.Match(request), 12);
  const auto calls = engine.calls.Take();
  EXPECT_THAT(std::vector<std::string>(calls.end() - 2, calls.end()),
              ElementsAre("touch 3", "touch 2"));
  const OffloadJob load = LoadJob(engine, request, 12);
  EXPECT_EQ(engine.PositionsOf(load, request, 0), (Positions{0, 1, 2}));
  EXPECT_EQ(engine.PositionsOf(load, request, 1), (Positions{1, 2}));
  engine.Complete();
  TestRequest& longer = engine.Add(18, 17);
  EXPECT_EQ(engine.Match(longer, 12), 4);
  longer.tables = {{BlockId(201), BlockId(202), BlockId(203), BlockId(204)},
                   {BlockId(0), BlockId(0), BlockId(205), BlockId(206)}};
  ASSERT_TRUE(engine.scheduler().UpdateAfterAlloc(longer.id, 4, longer.tables).ok());
  const OffloadJob second_load = engine.Step().loads.at(0);
  EXPECT_EQ(engine.PositionsOf(second_load, longer, 0), (Positions{3}));
  EXPECT_EQ(engine.PositionsOf(second_load, longer, 1), (Positions{3}));
}

TEST(Loads, FullGroupsOfTwoBlockSizesLoadTheirOwnChunksBehindTheGpusHit) {
  TestEngine engine(Config({Full(12), Full(16)}));
  engine.Stored(engine.Add(96, 96));
  TestRequest& request = engine.Add(90, 85);
  ASSERT_EQ(engine.Match(request, 48), 32);
  const OffloadJob load = LoadJob(engine, request, 32);
  EXPECT_EQ(engine.PositionsOf(load, request, 0), (Positions{4, 5, 6}));
  EXPECT_EQ(engine.PositionsOf(load, request, 1), (Positions{3, 4}));
}

TEST(Loads, ASecondRequestWaitsForALoadInFlight) {
  TestEngine engine(Config({Full()}));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& first = engine.AddCopy(stored);
  TestRequest& second = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(first), 12);
  LoadJob(engine, first, 12);
  EXPECT_EQ(engine.Match(second), std::nullopt);
  EXPECT_THAT(engine.Complete().loaded, ElementsAre(first.id));
  EXPECT_EQ(engine.Match(second, 12), 0);  // the GPU has the chunk at this point
}

TEST(Loads, WithoutPrefixCachingOnTheGpuNoRequestWaitsForTheLoadOfAnother) {
  OffloadSchedulerConfig config = Config({Full()});
  config.gpu_prefix_caching = false;
  TestEngine engine(config);
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& first = engine.AddCopy(stored);
  TestRequest& second = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(first), 12);
  LoadJob(engine, first, 12);
  EXPECT_EQ(engine.Match(second), 12);
}

TEST(Loads, ARequestThatSkipsThePrefixCacheStoresAllTheSame) {
  TestEngine engine(Config({Full()}));
  TestRequest& stored = engine.Stored(engine.Add(12));
  TestRequest& request = engine.AddCopy(stored);
  engine.Sample(request, 4);
  request.cache.skip_prefix_lookup = true;
  engine.calls.Take();
  EXPECT_EQ(engine.Match(request), 0);
  EXPECT_THAT(engine.calls.Take(), ElementsAre("touch 4"));
  EXPECT_THAT(engine.Run(request, 16).stores, SizeIs(1));
}

TEST(Loads, EagleGroupsComputeTheirLastChunkAgain) {
  for (const auto& [hits, expected] : std::vector<std::pair<int64_t, int64_t>>{{3, 8}, {1, 0}}) {
    TestEngine engine(Config({Eagle(Full())}));
    engine.Stored(engine.Add(hits * 4, hits * 4));
    TestRequest& request = engine.Add(20, hits * 4);
    EXPECT_EQ(engine.Match(request), expected);
  }
}

TEST(Loads, OfAPlainAndAnEagleGroupOnlyOneChunkIsDropped) {
  TestEngine engine(Config({Full(), Eagle(Full())}));
  engine.Stored(engine.Add(12, 12));
  TestRequest& request = engine.Add(20, 12);
  EXPECT_EQ(engine.Match(request), 8);
}

TEST(Loads, AfterEagleStoresBothGroupsLoad) {
  TestEngine engine(Config({Full(), Eagle(Window(8))}));
  engine.Stored(engine.Add(12, 12));
  TestRequest& request = engine.Add(20, 12);
  ASSERT_EQ(engine.Match(request), 8);
  const OffloadJob load = LoadJob(engine, request, 8);
  EXPECT_EQ(engine.PositionsOf(load, request, 0), (Positions{0, 1}));
  EXPECT_EQ(engine.PositionsOf(load, request, 1), (Positions{0, 1}));
}

TEST(Loads, ContradictingArgumentsAreRefusedAndChangeNothing) {
  TestEngine engine(Config({Full()}));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request), 12);
  auto& scheduler = engine.scheduler();
  EXPECT_EQ(scheduler.UpdateAfterAlloc(OffloadRequestId(77), 4, {}).code(), StatusCode::kNotFound);
  EXPECT_EQ(scheduler.UpdateAfterAlloc(request.id, 4, {}).code(), StatusCode::kInvalidArgument);
  request.tables[0] = {BlockId(5)};
  EXPECT_EQ(scheduler.UpdateAfterAlloc(request.id, 12, request.tables).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler.UpdateAfterAlloc(request.id, -4, request.tables).code(),
            StatusCode::kInvalidArgument);
  request.tables[0].resize(9, BlockId(6));
  EXPECT_EQ(scheduler.UpdateAfterAlloc(request.id, 36, request.tables).code(),
            StatusCode::kInvalidArgument);
  EXPECT_THAT(scheduler.JobsInFlight(), IsEmpty());
  EXPECT_TRUE(engine.Load(request, 12).ok());
}

TEST(Loads, OfMoreTokensThanTheRequestHasAreRefused) {
  TestEngine engine(Config({Full()}));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request, 4), 8);
  auto& scheduler = engine.scheduler();
  for (const int64_t tokens : {int64_t{10}, INT64_MAX - 4, INT64_MAX}) {
    const Status status = scheduler.UpdateAfterAlloc(request.id, tokens, request.tables);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << tokens;
    EXPECT_THAT(status.message(), ::testing::HasSubstr("exceeds the tokens")) << tokens;
  }
  EXPECT_THAT(scheduler.JobsInFlight(), IsEmpty());
  EXPECT_TRUE(engine.Load(request, 8).ok());
}

TEST(Loads, OfChunksThatWereEvictedAfterTheLookupAreRefused) {
  TestEngine engine(Config({Full()}, 1, 3));
  TestRequest& stored = engine.Stored(engine.Add(13));
  TestRequest& request = engine.AddCopy(stored);
  ASSERT_EQ(engine.Match(request), 12);
  engine.Stored(engine.Add(12));
  EXPECT_EQ(engine.Load(request, 12).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(engine.scheduler().JobsInFlight(), IsEmpty());
}

}  // namespace
}  // namespace kvcast::offload
