// The scheduler avoids known faults of vLLM's connector. If the compatible mode has a fault, at
// least one test of this fault also runs in that mode, to prove that the test detects the fault.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A window released blocks, and another request wrote to these blocks. Then all chunks are stored
// again. A store under the old keys would contain the other request's content.
class StaleBlocks : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Compatible, StaleBlocks, ::testing::Bool());

TEST_P(StaleBlocks, AreNotStoredAfterAReset) {
  OffloadSchedulerConfig config = Config({Full(), Window(8)});
  config.compatible = GetParam();
  TestEngine engine(config);
  TestRequest& request = engine.Stored(engine.Add(16));
  const BlockId given_up = request.tables[1][0];
  TestRequest& other = engine.Add(4);
  engine.Match(other);
  engine.Schedule(other, 4, {777, given_up.value});
  engine.Step();
  engine.Complete();
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  engine.Sample(request);
  engine.Schedule(request, 1);
  const OffloadPlan& plan = engine.Step();
  ASSERT_THAT(plan.stores, SizeIs(1));
  const auto& stored = plan.stores[0].gpu_blocks;
  if (GetParam()) {
    EXPECT_THAT(stored, Contains(given_up)) << "vLLM's fault";
  } else {
    EXPECT_THAT(stored, Not(Contains(given_up)));
    EXPECT_EQ(engine.PositionsOf(plan.stores[0], request, 1), (Positions{1, 2, 3}));
  }
}

// The step that computes the last token of a request is built before the token is known. So the
// next step stores the last chunk of the request. In that step both blocks of the chunk already
// belong to another request. The window's block is not stored. The full-attention block is still
// stored, because the flush ends the copy before the step runs.
TEST_P(StaleBlocks, OfARequestThatEndedAreNotStored) {
  OffloadSchedulerConfig config = Config({Full(), Window(8)});
  config.compatible = GetParam();
  TestEngine engine(config);
  TestRequest& request = engine.Stored(engine.Add(7));
  EXPECT_THAT(engine.Run(request, 1).stores, IsEmpty()) << "its last block has no hash yet";
  engine.Sample(request);
  engine.Finish(request);
  TestRequest& other = engine.Add(4);
  engine.Match(other);
  const Blocks given = {request.tables[0][1].value, request.tables[1][1].value};
  engine.Schedule(other, 4, given);
  const OffloadPlan& plan = engine.Step();
  const auto store = std::find_if(plan.stores.begin(), plan.stores.end(),
                                  [&](const auto& job) { return job.request == request.id; });
  ASSERT_NE(store, plan.stores.end());
  EXPECT_EQ(store->gpu_blocks, std::vector<BlockId>{BlockId(given[0])});
  EXPECT_THAT(plan.flush, ElementsAre(store->id));
}

GroupSpec ReferenceWindow(int64_t tokens) {
  GroupSpec spec = Full();
  spec.reference_window = tokens;
  return spec;
}

// A reference window of 8 tokens frees the fifth block when 28 tokens are computed: the block is
// behind the prompt of 16 tokens, and before the window.
TEST(Faults, ABlockThatAReferenceWindowFreedIsNotStoredAfterAReset) {
  TestEngine engine(Config({ReferenceWindow(8)}));
  TestRequest& request = engine.Stored(engine.Add(16));
  engine.Decode(request, 12);
  const BlockId freed = request.tables[0][4];
  TestRequest& other = engine.Add(4);
  engine.Match(other);
  engine.Schedule(other, 4, {freed.value});
  engine.Step();
  engine.Complete();
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  engine.Sample(request);
  const OffloadPlan& plan = engine.Run(request, 1);
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_EQ(engine.PositionsOf(plan.stores[0], request), (Positions{0, 1, 2, 3, 5, 6}));
}

TEST(Faults, ABlockThatAReferenceWindowFreedIsWrittenAfterItsCopy) {
  TestEngine engine(Config({ReferenceWindow(8)}));
  TestRequest& request = engine.Stored(engine.Add(16));
  std::optional<OffloadJob> store;  // of the fifth block
  while (request.computed < 28) {
    engine.Sample(request);
    const OffloadPlan& plan = engine.Run(request, 1);
    if (!store && !plan.stores.empty()) store = plan.stores[0];
  }
  ASSERT_TRUE(store);
  ASSERT_EQ(engine.PositionsOf(*store, request), Positions{4});
  TestRequest& other = engine.Add(4);
  engine.Match(other);
  engine.Schedule(other, 4, {store->gpu_blocks[0].value});
  EXPECT_THAT(engine.Step().flush, Contains(store->id));
}

TEST(Faults, ABlockThatIsTwiceInATableIsStoredOnceAndItsFenceEnds) {
  TestEngine engine(Config({Window(8)}));
  TestRequest& request = engine.Stored(engine.Add(16));
  const BlockId reused = request.tables[0][0];
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  engine.Sample(request, 4);
  engine.Schedule(request, 4, {reused.value});  // given up by the window, then taken again
  const OffloadPlan& plan = engine.Step();
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_EQ(std::count(plan.stores[0].gpu_blocks.begin(), plan.stores[0].gpu_blocks.end(), reused),
            1);
  EXPECT_THAT(plan.stores[0].gpu_blocks, SizeIs(4));
  engine.Complete();
  EXPECT_THAT(engine.scheduler().FencedBlocks(), IsEmpty());
}

// The prefix cache of the GPU is reset and all requests are preempted. The same step admits a
// request again and loads its blocks from host memory.
TEST(Faults, APreemptedRequestMayLoadInTheSameStep) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Stored(engine.Add(13));
  ASSERT_EQ(engine.Match(request), 12);
  ASSERT_TRUE(engine.Load(request, 12).ok());
  const OffloadPlan& plan = engine.Step({request.id});
  EXPECT_THAT(plan.loads, SizeIs(1));
  EXPECT_THAT(plan.flush, IsEmpty()) << "the load is not submitted yet";
  EXPECT_THAT(engine.Complete().loaded, ElementsAre(request.id));
}

// The token that is sampled last is never computed, so it has no KV.
TEST(Faults, AChunkThatEndsWithATokenThatWasNotComputedIsNotAnnounced) {
  for (const bool compatible : {true, false}) {
    OffloadSchedulerConfig config = Config({Full()});
    config.compatible = compatible;
    TestEngine engine(config);
    TestRequest& request = engine.Stored(engine.Add(7));
    EXPECT_THAT(engine.scheduler().TakeEvents(), SizeIs(1));
    engine.Sample(request);  // fills the second block, but is not computed
    engine.Finish(request);
    EXPECT_THAT(engine.Step().stores, SizeIs(compatible ? 1 : 0));
    engine.Complete();
    EXPECT_THAT(engine.scheduler().TakeEvents(), SizeIs(compatible ? 1 : 0));
    TestRequest& again = engine.AddCopy(request);
    EXPECT_EQ(engine.Match(again, 4), compatible ? 4 : 0);
  }
}

TEST(Faults, OnlyComputedChunksOfAnAbortedRequestAreStored) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(16);
  engine.Match(request);
  engine.Run(request, 8);
  engine.Complete();
  engine.Finish(request, true);
  EXPECT_THAT(engine.Step().stores, IsEmpty());
  EXPECT_EQ(engine.scheduler().manager().num_chunks(), 2);
}

// A chunk has three blocks, the window has 8 tokens. After a GPU hit of 24 tokens the window has
// blocks 4 and 5 of a chunk, but not block 3 of the same chunk.
TEST(Faults, AChunkWhoseFirstBlocksAreMissingIsNoHit) {
  for (const bool compatible : {true, false}) {
    OffloadSchedulerConfig config = Config({Full(), Window(8)}, 3);
    config.compatible = compatible;
    TestEngine engine(config);
    TestRequest& request = engine.Add(25, 24);
    ASSERT_EQ(engine.Match(request, 24), 0);
    engine.Allocate(request, 24);
    ASSERT_EQ(request.tables[1][3], BlockId(0));
    engine.Schedule(request, 1);
    const OffloadPlan& plan = engine.Step();
    ASSERT_THAT(plan.stores, SizeIs(1));
    EXPECT_EQ(engine.PositionsOf(plan.stores[0], request, 1),
              compatible ? (Positions{4, 5}) : Positions());
    engine.Complete();
    // The request has 12 tokens on the GPU. A load of the chunk must bring block 3 too, for a
    // prefix that ends at 16 tokens.
    TestRequest& needs_all = engine.Add(25, 24);
    EXPECT_EQ(engine.Match(needs_all, 12), compatible ? 12 : 0);
  }
}

TEST(Faults, AStateNeedsNoBlocksBeforeItself) {
  TestEngine engine(Config({Full(16), Mamba(16, MambaMode::kAlign)}, 2));
  TestRequest& request = engine.Add(33);
  engine.Match(request);
  request.tables = {{BlockId(11), BlockId(12)}, {BlockId(0), BlockId(13)}};
  engine.Schedule(request, 32);
  const OffloadPlan& plan = engine.Step();
  ASSERT_THAT(plan.stores, SizeIs(1));
  EXPECT_THAT(plan.stores[0].group_sizes, ElementsAre(2, 1));
  EXPECT_THAT(plan.stores[0].block_indices, ElementsAre(0, 1));
}

// A reset frees the slots of a running load. The workers wait for all jobs of a flush together, so
// a store of the flush must not write to these slots.
TEST(Faults, AfterAResetNoStoreJoinsTheFlushOfADroppedLoad) {
  for (const bool compatible : {false, true}) {
    OffloadSchedulerConfig config = Config({Full()});
    config.compatible = compatible;
    TestEngine engine(config);
    TestRequest& stored = engine.Stored(engine.Add(13));
    TestRequest& loader = engine.AddCopy(stored);
    ASSERT_EQ(engine.Match(loader), 12);
    ASSERT_TRUE(engine.Load(loader, 12).ok());
    const OffloadJob load = engine.Step().loads.at(0);
    ASSERT_TRUE(engine.scheduler().Reset().ok());
    engine.Finish(stored);
    TestRequest& other = engine.Add(4);
    engine.Match(other);
    engine.Schedule(other, 4, {stored.tables[0][0].value});
    const OffloadPlan& plan = engine.Step();
    if (compatible) {
      ASSERT_THAT(plan.stores, SizeIs(2));
      EXPECT_THAT(plan.stores[1].slots, Contains(::testing::AnyOfArray(load.slots)));
      EXPECT_THAT(plan.flush, ElementsAre(load.id, plan.stores[1].id)) << "vLLM's fault";
    } else {
      EXPECT_THAT(plan.flush, ElementsAre(load.id));
      ASSERT_THAT(plan.stores, SizeIs(1));
      EXPECT_EQ(plan.stores[0].request, other.id);
    }
  }
}

// A chunk has two blocks, and its state is the second block. The first store found no room, so the
// next store has both states.
TEST(Faults, TheStatesOfOneJobStandWhereALoadLooksForThem) {
  TestEngine engine(Config({Full(16), Mamba(16, MambaMode::kAlign)}, 2, 4));
  TestRequest& holder = engine.Add(64);
  engine.Match(holder);
  engine.Run(holder, 64);
  TestRequest& request = engine.Add(65);
  engine.Match(request);
  engine.Schedule(request, 32, {11, 12, 0, 13});
  EXPECT_THAT(engine.Step().stores, IsEmpty());
  engine.Complete();
  engine.Schedule(request, 32, {21, 22, 0, 23});
  const OffloadPlan& plan = engine.Step();
  ASSERT_THAT(plan.stores, SizeIs(1));
  const auto stored = TestEngine::PlacesOf(plan.stores[0], 1, 2);
  ASSERT_THAT(stored, SizeIs(2));
  EXPECT_THAT(stored.at(BlockId(13)), ::testing::EndsWith("/1"));
  EXPECT_THAT(stored.at(BlockId(23)), ::testing::EndsWith("/1"));
  EXPECT_NE(stored.at(BlockId(13)), stored.at(BlockId(23)));
  for (const auto& [block, jobs] : engine.scheduler().FencedBlocks()) EXPECT_NE(block, BlockId(0));
  engine.Complete();
  TestRequest& again = engine.AddCopy(request);
  ASSERT_EQ(engine.Match(again), 64);
  again.tables = {{BlockId(31), BlockId(32), BlockId(33), BlockId(34)},
                  {BlockId(0), BlockId(0), BlockId(0), BlockId(35)}};
  ASSERT_TRUE(engine.scheduler().UpdateAfterAlloc(again.id, 64, again.tables).ok());
  const OffloadJob load = engine.Step().loads.at(0);
  EXPECT_EQ(TestEngine::PlacesOf(load, 1, 2).at(BlockId(35)), stored.at(BlockId(23)));
}

}  // namespace
}  // namespace kvcast::offload
