// The simple offload evicts the oldest blocks of the host pool, and keeps blocks that are pinned,
// being loaded or being stored. At the end or preemption of a request, and at a reset, all blocks
// are released when the copies have ended.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/simple_testing.h"

namespace kvcast::offload {
namespace {

CacheConfig Gpu() { return Config({Full()}, 30); }
std::vector<TokenId> TwoBlocks(TokenId first) { return Tokens(33, first); }

TEST(SimpleEviction, TheBlocksOfTheOldestRequestAreEvicted) {
  TestTier tier(Gpu(), Eager(5));
  tier.Serve(Request("a", TwoBlocks(0)));
  tier.Serve(Request("b", TwoBlocks(1000)));
  tier.Serve(Request("c", TwoBlocks(2000)));
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(TwoBlocks(0)), 0);
  EXPECT_EQ(tier.Hit(TwoBlocks(1000)), 32);
  EXPECT_EQ(tier.Hit(TwoBlocks(2000)), 32);
}

TEST(SimpleEviction, ATouchedBlockIsKeptAndTheOtherIsEvicted) {
  TestTier tier(Gpu(), Eager(5));
  tier.Serve(Request("a", TwoBlocks(0)));
  tier.Serve(Request("b", TwoBlocks(1000)));
  tier.ForgetGpu();
  tier.Serve(Request("again", TwoBlocks(0)));
  tier.Serve(Request("c", TwoBlocks(2000)));
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(TwoBlocks(0)), 32);
  EXPECT_EQ(tier.Hit(TwoBlocks(1000)), 0);
}

TEST(SimpleEviction, ThePinBetweenMatchAndAllocKeepsAWhileCAndDAreStored) {
  TestTier tier(Gpu(), Eager(5));
  tier.Serve(Request("a", TwoBlocks(0)));
  tier.Serve(Request("b", TwoBlocks(1000)));
  tier.ForgetGpu();
  CacheRequest again = Request("again", TwoBlocks(0));
  const PrefixHit hit = tier.gpu().GetComputedBlocks(again);
  ASSERT_EQ(tier.offload().Match(again, 0), 32);
  tier.Serve(Request("c", TwoBlocks(2000)));
  tier.Serve(Request("d", TwoBlocks(3000)));
  EXPECT_EQ(tier.Allocate(again, hit, 32), 32);
  EXPECT_EQ(ToIds(tier.Step().load.cpu), (Ids{1, 2}));
  tier.CompleteLoads();
}

TEST(SimpleEviction, AMatchIsUnpinnedByTheNextMatchAndByTheEndOfTheRequest) {
  TestTier tier(Gpu(), Eager(5));
  tier.Serve(Request("a", TwoBlocks(0)));
  tier.ForgetGpu();
  CacheRequest again = Request("again", TwoBlocks(0));
  tier.gpu().GetComputedBlocks(again);
  tier.offload().Match(again, 0);
  tier.offload().Match(again, 0);
  EXPECT_EQ(tier.host_free(), 2);
  tier.offload().RequestFinished(again, 0);
  EXPECT_EQ(tier.host_free(), 4);
  tier.offload().RequestFinished(again, 0);
  EXPECT_EQ(tier.host_free(), 4);
}

TEST(SimpleEviction, BlocksBeingStoredAreNotEvicted) {
  TestTier tier(Gpu(), Eager(5));
  CacheRequest first = Request("a", Tokens(3 * 16 + 1));
  CacheRequest second = Request("b", Tokens(3 * 16 + 1, 1000));
  tier.Start(first);
  tier.Start(second);
  tier.Step();
  EXPECT_EQ(ToIds(tier.Step().store.cpu), (Ids{1, 2, 3, 4})) << "three blocks of a, one of b";
  EXPECT_EQ(tier.Step().store_event, std::nullopt) << "no room";
  tier.CompleteStores();
  EXPECT_EQ(tier.Step().store.cpu.size(), 2u) << "the stores of b continue";
  EXPECT_EQ(tier.step().content[0].prefix_tokens, 32);
}

TEST(SimpleEviction, AGpuBlockIsPinnedUntilItsCopyIsDone) {
  TestTier tier(Config({Full()}, 5), Eager(9));
  CacheRequest request = Request("a", Tokens(4 * 16));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.Finish(request);
  EXPECT_EQ(tier.gpu_free(), 0);
  CacheRequest next = Request("b", Tokens(16, 1000));
  EXPECT_EQ(tier.Start(next), -1) << "the copies still read all blocks";
  tier.CompleteStores();
  EXPECT_EQ(tier.gpu_free(), 4);
  EXPECT_EQ(tier.Start(next), 0);
}

TEST(SimpleEviction, PinsAreNoHoldersOfACommonPrefix) {
  TestTier tier(Gpu(), Eager(9));
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  tier.Step();
  EXPECT_EQ(tier.gpu().CommonPrefixBlocks(request, GroupIdx(0)), 3);
}

TEST(SimpleFinish, DuringAStoreDefersTheCleanup) {
  TestTier tier(Gpu(), Eager(9));
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.Finish(request);
  EXPECT_EQ(tier.offload().Inspect().requests.size(), 1u);
  EXPECT_EQ(tier.host_free(), 6);
  EXPECT_EQ(tier.gpu_free(), 29 - 2);
  tier.CompleteStores();
  EXPECT_EQ(tier.offload().Inspect().requests.size(), 0u);
  EXPECT_EQ(tier.host_free(), 8);
  EXPECT_EQ(tier.gpu_free(), 29);
  EXPECT_EQ(tier.HostKeys(), 2);
  EXPECT_FALSE(tier.offload().has_pending_work());
}

TEST(SimpleFinish, DuringALoadDefersTheCleanup) {
  TestTier tier(Gpu(), Eager(9));
  tier.Serve(Request("a", Tokens(33)));
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(33));
  tier.Start(again);
  tier.Step();
  tier.Finish(again);
  EXPECT_EQ(tier.host_free(), 6);
  EXPECT_EQ(tier.gpu_free(), 27) << "the load still writes to its blocks";
  tier.CompleteLoads();
  EXPECT_EQ(tier.host_free(), 8);
  EXPECT_EQ(tier.gpu_free(), 29);
  EXPECT_EQ(tier.offload().CompleteLoad("b").code(), StatusCode::kNotFound);
}

TEST(SimpleFinish, BeforeBuildStepReturnsTheLoadDropsTheLoad) {
  TestTier tier(Gpu(), Eager(9));
  tier.Serve(Request("a", Tokens(33)));
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(33));
  tier.Start(again);
  tier.Finish(again);
  EXPECT_EQ(tier.host_free(), 8);
  EXPECT_EQ(tier.gpu_free(), 29);
  EXPECT_EQ(tier.Step().load_event, std::nullopt);
}

TEST(SimpleGiveUp, ALoadKeepsItsBlocksUntilItsCopyEnds) {
  for (const bool success : {true, false}) {
    TestTier tier(Gpu(), Eager(9));
    tier.Serve(Request("a", Tokens(33)));
    tier.ForgetGpu();
    CacheRequest again = Request("b", Tokens(33));
    ASSERT_EQ(tier.Start(again), 32);
    EXPECT_EQ(tier.offload().GiveUpLoad("b").code(), StatusCode::kNotFound)
        << "BuildStep has not returned it";
    tier.Step();
    EXPECT_EQ(tier.offload().GiveUpLoad("c").code(), StatusCode::kNotFound);
    ASSERT_TRUE(tier.offload().GiveUpLoad("b").ok());
    EXPECT_EQ(tier.Hit(Tokens(33)), 0) << "no other request waits for the load";
    tier.Preempt(again);
    EXPECT_EQ(tier.gpu_free(), 27) << "the load still writes to its blocks";
    EXPECT_EQ(tier.host_free(), 6) << "the load still reads host blocks";
    tier.Serve(Request("c", Tokens(33)));
    EXPECT_EQ(tier.offload().Match(again, 0), 0) << "the request has a load in progress";
    ASSERT_TRUE(tier.offload().CompleteLoad("b", success).ok());
    EXPECT_EQ(tier.gpu_free(), 29);
    EXPECT_EQ(tier.host_free(), 8);
    EXPECT_EQ(tier.offload().Match(again, 0), 32);
    EXPECT_EQ(tier.offload().CompleteLoad("b").code(), StatusCode::kNotFound);
    tier.offload().RequestFinished(again, 0);
  }
}

TEST(SimplePreempt, RequestsOneFlushAndStoresFromTheStartAgain) {
  TestTier tier(Gpu(), Eager(9));
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  EXPECT_FALSE(tier.Step().need_flush);
  tier.CompleteStores(/*success=*/false);
  tier.Preempt(request);
  EXPECT_TRUE(tier.Step().need_flush);
  tier.Start(request);
  EXPECT_EQ(tier.Step().store.cpu.size(), 2u);
  EXPECT_FALSE(tier.step().need_flush);
}

TEST(SimpleReset, EagerReturnsFalseUntilTheStoresAreDoneAndThenTrue) {
  TestTier tier(Gpu(), Eager(9));
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  tier.Step();
  EXPECT_FALSE(tier.offload().Reset());
  EXPECT_EQ(tier.offload().Inspect().abandoned_stores, std::vector<int64_t>{0});
  tier.CompleteStores();
  EXPECT_EQ(tier.HostKeys(), 0) << "abandoned copies are not cached";
  EXPECT_TRUE(tier.offload().Reset());
  EXPECT_EQ(tier.host_free(), 8) << "only the null block is referenced";
  EXPECT_EQ(tier.gpu_free(), 29 - 3);
}

TEST(SimpleReset, LazyReturnsFalseUntilTheStoresAreDoneAndThenTrue) {
  TestTier tier(Gpu(), Lazy(9, 100));
  tier.Serve(Request("a", Tokens(33)));
  CacheRequest request = Request("b", Tokens(33, 1000));
  tier.Start(request);
  tier.Step();
  tier.Finish(request);
  EXPECT_EQ(tier.Step().store.cpu.size(), 2u);
  EXPECT_FALSE(tier.offload().Reset());
  tier.CompleteStores();
  EXPECT_TRUE(tier.offload().Reset());
  EXPECT_EQ(tier.host_free(), 8);
  EXPECT_EQ(tier.gpu_free(), 29);
}

TEST(SimpleReset, WithALoadUnderWayReturnsFalseUntilItIsDoneAndThenTrue) {
  TestTier tier(Gpu(), Eager(9));
  tier.Serve(Request("a", Tokens(33)));
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(33));
  tier.Start(again);
  tier.Step();
  EXPECT_FALSE(tier.offload().Reset());
  EXPECT_EQ(tier.offload().Inspect().abandoned_loads, std::vector<std::string>{"b"});
  tier.CompleteLoads();
  EXPECT_EQ(tier.computed(again), 32) << "the load arrived";
  EXPECT_TRUE(tier.offload().Reset());
  EXPECT_EQ(tier.host_free(), 8);
}

TEST(SimpleReset, EventNumbersNeverRestart) {
  TestTier tier(Gpu(), Eager(9));
  tier.Serve(Request("a", Tokens(33)));
  EXPECT_TRUE(tier.offload().Reset());
  tier.ForgetGpu();
  CacheRequest request = Request("b", Tokens(33));
  tier.Start(request);
  tier.Step();
  EXPECT_EQ(tier.Step().store_event, 1);
}

}  // namespace
}  // namespace kvcast::offload
