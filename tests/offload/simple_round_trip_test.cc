// The simple offload stores blocks and loads them back, and checks its configuration. Blocks have
// 16 tokens. Of 5 host blocks, 4 are usable, because block 0 is the null block.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/simple_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SimpleEager, RoundTrip) {
  TestTier tier(Config({Full()}, 20), Eager(5));
  CacheRequest request = Request("a", Tokens(3 * 16 + 1));
  EXPECT_EQ(tier.Start(request), 0);
  EXPECT_EQ(tier.Step().store_event, std::nullopt) << "nothing is confirmed before the first step";
  EXPECT_EQ(ToIds(tier.Step().store.cpu), (Ids{1, 2, 3}));
  EXPECT_EQ(tier.step().store.gpu.size(), 3u);
  EXPECT_EQ(tier.Hit(Tokens(49)), 0) << "the copies are not done";
  tier.CompleteStores();
  tier.Finish(request);
  tier.ForgetGpu();

  CacheRequest again = Request("b", Tokens(3 * 16 + 1));
  EXPECT_EQ(tier.Start(again), 48);
  EXPECT_EQ(ToIds(tier.Step().load.cpu), (Ids{1, 2, 3}));
  EXPECT_EQ(tier.step().load.gpu.size(), 3u);
  tier.CompleteLoads();
  tier.Step();
  EXPECT_EQ(tier.computed(again), 49);
  tier.Check();
}

TEST(SimpleEager, APromptOfExactlyKBlocksHitsKMinusOne) {
  TestTier tier(Config({Full()}, 20), Eager(5));
  tier.Serve(Request("a", Tokens(3 * 16)));
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(Tokens(3 * 16)), 2 * 16);
  EXPECT_EQ(tier.Hit(Tokens(3 * 16 + 1)), 3 * 16);
}

TEST(SimpleLazy, RoundTripAfterFillersPushTheBlocksToTheQueueHead) {
  TestTier tier(Config({Full()}, 11), Lazy(20, 2));
  CacheRequest request = Request("a", Tokens(2 * 16));
  tier.Start(request);
  tier.Step();
  EXPECT_EQ(tier.Step().store_event, std::nullopt) << "running requests are not stored";
  tier.Finish(request);
  EXPECT_EQ(tier.Step().store_event, std::nullopt) << "uncached blocks are taken first";
  CacheRequest filler = Request("filler", Tokens(8 * 16, 1000));
  tier.Start(filler);
  EXPECT_EQ(tier.Step().store.gpu.size(), 2u);
  tier.CompleteStores();
  CacheRequest more = Request("more", Tokens(2 * 16, 2000));
  tier.Start(more);
  tier.Step();
  EXPECT_EQ(tier.Hit(Tokens(2 * 16 + 1)), 32) << "the GPU has evicted the blocks";
}

TEST(SimpleEager, ADuplicateStoreAllocatesNothingWhetherDoneOrInFlight) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  CacheRequest first = Request("a", Tokens(33));
  CacheRequest second = Request("b", Tokens(33));
  tier.Start(first);
  tier.Step();
  tier.Step();
  EXPECT_EQ(tier.host_free(), 6);
  tier.Start(second);
  tier.Step();
  EXPECT_EQ(tier.Step().store_event, std::nullopt);
  EXPECT_EQ(tier.host_free(), 6) << "the first store is in flight";
  tier.CompleteStores();
  CacheRequest third = Request("c", Tokens(33));
  tier.Start(third);
  tier.Step();
  EXPECT_EQ(tier.Step().store_event, std::nullopt);
  EXPECT_EQ(tier.host_free(), 8) << "the first store has ended";
}

TEST(SimpleEager, ChunkedPrefillStoresTwoThenTwoNewBlocks) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  CacheRequest request = Request("a", Tokens(4 * 16 + 1));
  tier.Start(request, 0, 2 * 16);
  tier.Step();
  tier.Extend(request, 2 * 16 + 1);
  EXPECT_EQ(ToIds(tier.Step().store.cpu), (Ids{1, 2}));
  EXPECT_EQ(ToIds(tier.Step().store.cpu), (Ids{3, 4}));
  EXPECT_EQ(tier.step().content[0].prefix_tokens, 3 * 16);
  EXPECT_EQ(tier.Step().store_event, std::nullopt);
}

TEST(SimpleEager, TokensThatAreNotConfirmedAreNotStored) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  CacheRequest request = Request("a", Tokens(40));
  tier.Start(request);
  TransferStep step;
  const StepRequest scheduled[] = {{&request, 31}};
  tier.offload().BuildStep(scheduled, step);
  EXPECT_EQ(step.store.cpu.size(), 1u);
}

TEST(SimpleEager, BlocksAreStoredUpToTheCommonMultipleOfTheBlockSizes) {
  TestTier tier(Config({Full(32), Window(64, 16)}, 40), Eager(30));
  CacheRequest request = Request("a", Tokens(3 * 16 + 1));
  tier.Start(request);
  tier.Step();
  tier.Step();
  EXPECT_EQ(tier.step().store.gpu.size(), 3u) << "one block of 32 tokens, two of 16";
}

TEST(SimpleEager, NullBlocksAreNeverInPairs) {
  TestTier tier(Config({Full(), Window(16)}, 40), Eager(20));
  tier.Serve(Request("a", Tokens(6 * 16 + 1)));
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(6 * 16 + 1));
  EXPECT_EQ(tier.Start(again), 6 * 16);
  for (const BlockId block : tier.Step().load.cpu) EXPECT_NE(block, engine::kNullBlock);
  for (const BlockId block : tier.step().load.gpu) EXPECT_NE(block, engine::kNullBlock);
  EXPECT_EQ(tier.step().load.cpu.size(), 6u + 1u) << "the window needs only its last block";
  tier.CompleteLoads();
}

TEST(SimpleLoad, AHitOfOneBlockLoadsIt) {
  TestTier tier(Config({Full(), Window(16)}, 40), Eager(20));
  tier.Serve(Request("a", Tokens(17)));
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(17));
  EXPECT_EQ(tier.Start(again), 16);
  EXPECT_EQ(tier.Step().load.cpu.size(), 2u);
  tier.CompleteLoads();
}

TEST(SimpleLoad, TwoAcceptedBlocksAfterAGpuHitOfTwoLoadPositionsTwoAndThree) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  tier.Serve(Request("a", Tokens(6 * 16 + 1)));
  tier.ForgetGpu();
  CacheRequest head = Request("head", Tokens(2 * 16 + 1));
  head.skip_prefix_lookup = true;
  tier.Start(head);
  tier.Step();
  CacheRequest again = Request("b", Tokens(6 * 16 + 1));
  EXPECT_EQ(tier.Hit(Tokens(6 * 16 + 1)), 4 * 16);
  EXPECT_EQ(tier.Start(again, 2 * 16), 2 * 16);
  tier.Step();
  EXPECT_EQ(ToIds(tier.step().load.cpu), (Ids{3, 4}));
  const auto table = tier.gpu().BlockTable(again, GroupIdx(0));
  EXPECT_EQ(ToIds(tier.step().load.gpu), (Ids{table[2].value, table[3].value}));
  tier.CompleteLoads();
  tier.Check();
}

TEST(SimpleLoad, OneEventLoadsForAllRequestsOfAStep) {
  TestTier tier(Config({Full()}, 40), Eager(20));
  tier.Serve(Request("a", Tokens(33)));
  tier.Serve(Request("b", Tokens(33, 1000)));
  tier.ForgetGpu();
  CacheRequest first = Request("c", Tokens(33));
  CacheRequest second = Request("d", Tokens(33, 1000));
  tier.Start(first);
  tier.Start(second);
  EXPECT_EQ(tier.Step().load_event, 0);
  EXPECT_EQ(ToIds(tier.step().load.cpu), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(tier.Step().load_event, std::nullopt);
  EXPECT_EQ(tier.offload().Inspect().loads[0].second, (std::vector<std::string>{"c", "d"}));
}

TEST(SimpleLoad, ARequestThatSkipsThePrefixCacheLoadsNothingAndIsStored) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  tier.Serve(Request("a", Tokens(33)));
  tier.ForgetGpu();
  CacheRequest request = Request("b", Tokens(49));
  request.skip_prefix_lookup = true;
  EXPECT_EQ(tier.Start(request), 0);
  tier.Step();
  EXPECT_EQ(tier.Step().store.cpu.size(), 1u) << "host memory has the other two";
}

TEST(SimpleLoad, MambaStatesComeBackWithTheirPrefix) {
  CacheConfig config = Config({Full(64), Mamba(MambaMode::kAlign, 64)}, 40);
  TestTier tier(config, Eager(20));
  CacheRequest request = Request("a", Tokens(3 * 64 + 1));
  tier.Start(request, 0, 2 * 64);
  tier.Step();
  tier.Extend(request, 64 + 1);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  tier.Finish(request);
  tier.Step();
  tier.CompleteStores();
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(3 * 64 + 1));
  EXPECT_GT(tier.Start(again), 0);
  const auto pairs = tier.Step().load;
  EXPECT_EQ(pairs.cpu.size(), static_cast<size_t>(tier.loading(again) / 64) + 1) << "and one state";
  tier.CompleteLoads();
}

TEST(SimpleConfig, DcpScalesTheBlock) {
  GroupSpec full = Full(32);  // 16 tokens on each of two ranks
  CacheConfig config = Config({full}, 20);
  config.decode_context_parallel = 2;
  TestTier tier(config, Eager(9));
  tier.Serve(Request("a", Tokens(3 * 32 + 1)));
  EXPECT_EQ(tier.HostKeys(), 3);
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(Tokens(3 * 32 + 1)), 3 * 32);
}

TEST(SimpleConfig, AHostBlockHasTheBytesOfAGpuBlock) {
  EXPECT_EQ(CpuBlocksFor(1 << 20, 1 << 20, 100), 100);
  EXPECT_EQ(CpuBlocksFor(3 << 19, 1 << 20, 101), 151);
  EXPECT_EQ(CpuBlocksFor(0, 1 << 20, 100), 1);
  EXPECT_EQ(CpuBlocksFor(1 << 20, 0, 100), 1);
  EXPECT_EQ(CpuBlocksFor(int64_t{1} << 50, int64_t{1} << 36, 1 << 22), int64_t{1} << 36);
}

TEST(SimpleConfig, TheLazyTargetIsTwiceTheBlocksThatAStepCanTake) {
  CacheConfig config = Config({Full(), Window(64), Mamba(MambaMode::kAlign)}, 100);
  config.max_in_flight_tokens = 100;
  EXPECT_EQ(LazyTargetFree(config), 2 * (7 + 5 + 2));
  TestTier tier(config, Lazy(10));
  EXPECT_EQ(tier.offload().config().lazy_target_free, 28);
}

TEST(SimpleConfig, EveryErrorNamesTheField) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  const auto error = [&tier](SimpleOffloadConfig config) {
    return SimpleOffload::Create(config, tier.gpu().gpu_blocks()).status().message();
  };
  SimpleOffloadConfig config = Eager(9);
  config.cache = Config({Full()}, 20);
  config.num_cpu_blocks = 0;
  EXPECT_THAT(error(config), ::testing::HasSubstr("num_cpu_blocks"));
  config.num_cpu_blocks = 9;
  config.num_workers = 0;
  EXPECT_THAT(error(config), ::testing::HasSubstr("num_workers"));
  config.num_workers = 1;
  config.lazy_target_free = -1;
  EXPECT_THAT(error(config), ::testing::HasSubstr("lazy_target_free"));
  config.lazy_target_free = 0;
  config.cache.groups = {Window(64)};
  EXPECT_THAT(error(config), ::testing::HasSubstr("full attention"));
}

TEST(SimpleWorkers, AStoreIsDoneWhenAllWorkersHaveReported) {
  SimpleOffloadConfig config = Eager(9);
  config.num_workers = 3;
  TestTier tier(Config({Full()}, 20), config);
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  const int64_t event = tier.Step().store_event.value();
  EXPECT_TRUE(tier.offload().CompleteStore(event, 2).ok());
  EXPECT_TRUE(tier.offload().has_pending_work());
  EXPECT_EQ(tier.offload().CompleteStore(event, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tier.offload().CompleteStore(event + 1, 1).code(), StatusCode::kNotFound);
  EXPECT_EQ(tier.HostKeys(), 0);
  tier.CompleteStores();
}

}  // namespace
}  // namespace kvcast::offload
