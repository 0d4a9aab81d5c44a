// The simple offload fixes defects of vLLM's simple offload. The compatible mode keeps these
// defects.
// SPDX-License-Identifier: Apache-2.0
#include <list>

#include "tests/offload/simple_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BothWays : public ::testing::TestWithParam<bool> {
 protected:
  bool like_vllm() const { return GetParam(); }
  SimpleOffloadConfig Way(SimpleOffloadConfig config) const {
    config.compatible = like_vllm();
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, BothWays, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "LikeVllm" : "Better"; });

TEST_P(BothWays, TheLastBlockComputedInTheFinishingStepIsStored) {
  TestTier tier(Config({Full()}, 20), Way(Eager(9)));
  CacheRequest request = Request("a", Tokens(2 * 16));
  tier.Start(request);
  tier.Step();
  tier.Finish(request);
  const auto& step = tier.Step();
  EXPECT_EQ(step.store.cpu.size(), like_vllm() ? 0u : 2u);
  EXPECT_EQ(tier.offload().has_pending_work(), !like_vllm());
  tier.CompleteStores();
  EXPECT_EQ(tier.HostKeys(), like_vllm() ? 0 : 2);
}

TEST_P(BothWays, BlocksEvictedInTheMiddleOfARunningRequestAreStoredAgain) {
  TestTier tier(Config({Full()}, 30), Way(Eager(5)));
  CacheRequest running = Request("a", Tokens(2 * 16 + 1));
  tier.Start(running);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  CacheRequest other = Request("b", Tokens(4 * 16 + 1, 1000));
  tier.Start(other);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  ASSERT_EQ(tier.HostKeys(), 4) << "all of them are blocks of b";
  tier.Finish(other);
  tier.Finish(running);
  tier.Step();
  tier.CompleteStores();
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(Tokens(2 * 16 + 1)), like_vllm() ? 0 : 32);
}

TEST_P(BothWays, ALoadBringsTheWholeChunkThatAttentionReads) {
  TestTier tier(Config({Full(), Chunked(4 * 16)}, 40), Way(Eager(40)));
  CacheRequest request = Request("a", Tokens(7 * 16 + 1));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  tier.Finish(request);
  tier.ForgetGpu();
  tier.Serve(Request("b", Tokens(2 * 16 + 1)));
  CacheRequest again = Request("c", Tokens(7 * 16 + 1));
  ASSERT_EQ(tier.Start(again), 5 * 16) << "after two blocks on the GPU";
  // All five blocks of full attention, and blocks 4 to 6 of the chunked group.
  EXPECT_EQ(tier.Step().load.gpu.size(), like_vllm() ? 5u + 1u : 5u + 3u);
  if (!like_vllm()) tier.CompleteLoads();
}

TEST(SimpleStoredAgain, KeepsStoredBlocksAndStoresTheOthersFromTheBeginning) {
  TestTier tier(Config({Full()}, 40), Eager(5));
  CacheRequest request = Request("a", Tokens(6 * 16 + 1));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  EXPECT_EQ(tier.HostKeys(), 4) << "there is no room for more";
  tier.Step();
  tier.CompleteStores();
  tier.Finish(request);
  tier.Step();
  tier.CompleteStores();
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(Tokens(6 * 16 + 1)), 4 * 16);
}

TEST_P(BothWays, AFailedStoreReleasesItsHostBlocksAndMakesNoEvent) {
  TestTier tier(Config({Full()}, 20), Way(Eager(9)));
  CacheRequest request = Request("a", Tokens(2 * 16 + 1));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.CompleteStores(/*success=*/false);
  EXPECT_EQ(tier.HostKeys(), 0);
  EXPECT_EQ(tier.host_free(), 8);
  EXPECT_THAT(tier.Events(), IsEmpty());
  tier.Finish(request);
  EXPECT_EQ(tier.Step().store.cpu.size(), like_vllm() ? 0u : 2u) << "tried again at the end";
  tier.CompleteStores();
}

TEST(SimpleFailure, OfOneWorkerFailsTheStore) {
  SimpleOffloadConfig config = Eager(9);
  config.num_workers = 2;
  TestTier tier(Config({Full()}, 20), config);
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  const int64_t event = tier.Step().store_event.value();
  EXPECT_TRUE(tier.offload().CompleteStore(event, 1, false).ok());
  EXPECT_EQ(tier.host_free(), 6) << "the other worker still writes";
  EXPECT_TRUE(tier.offload().CompleteStore(event, 1, true).ok());
  EXPECT_EQ(tier.HostKeys(), 0);
}

TEST(SimpleFailure, OfALoadRemovesTheHostBlocksSoThatTheLoadIsNotRepeated) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  tier.Serve(Request("a", Tokens(33)));
  tier.ForgetGpu();
  tier.Events();
  CacheRequest again = Request("b", Tokens(33));
  ASSERT_EQ(tier.Start(again), 32);
  tier.Step();
  tier.CompleteLoads(/*success=*/false);
  EXPECT_THAT(tier.Events(), ElementsAre("-g0", "-g0"));
  EXPECT_EQ(tier.HostKeys(), 0);
  tier.Step();
  EXPECT_EQ(tier.computed(again), 33) << "computed instead";
  tier.Step();
  tier.CompleteStores();
  EXPECT_EQ(tier.HostKeys(), 2);
}

TEST_P(BothWays, AStoredPrefixLosesItsEndFirst) {
  TestTier tier(Config({Full(), Window(64)}, 60), Way(Eager(9)));
  CacheRequest request = Request("a", Tokens(4 * 16 + 1));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  tier.Finish(request);
  CacheRequest other = Request("b", Tokens(16 + 1, 1000));
  tier.Start(other);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  tier.Finish(other);
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(Tokens(4 * 16 + 1)), like_vllm() ? 0 : 3 * 16);
}

TEST_P(BothWays, EqualBlocksTakeOneHostBlock) {
  TestTier tier(Config({Full()}, 20), Way(Eager(9)));
  CacheRequest first = Request("a", Tokens(17));
  CacheRequest second = Request("b", Tokens(17));
  tier.Start(first);
  second.skip_prefix_lookup = true;  // computes the blocks itself
  tier.Start(second);
  tier.Step();
  EXPECT_EQ(tier.Step().store.cpu.size(), like_vllm() ? 2u : 1u);
  tier.CompleteStores();
}

TEST_P(BothWays, AResetThatHasToWaitLeavesNoBlockToBeFound) {
  TestTier tier(Config({Full()}, 20), Way(Eager(9)));
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  CacheRequest other = Request("b", Tokens(33, 1000));
  tier.Start(other);
  tier.Step();
  tier.Step();
  EXPECT_FALSE(tier.offload().Reset());
  EXPECT_EQ(tier.HostKeys(), like_vllm() ? 2 : 0);
  tier.CompleteStores();
  tier.Step();
  tier.CompleteStores();
  EXPECT_EQ(tier.HostKeys(), like_vllm() ? 2 : 4) << "running requests are stored again";
}

TEST_P(BothWays, AShorterAcceptedHitLoadsTheBlocksThatItsWindowNeeds) {
  TestTier tier(Config({Full(), Window(32)}, 60), Way(Eager(30)));
  CacheRequest request = Request("a", Tokens(6 * 16 + 1));
  tier.Start(request);
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  tier.Finish(request);
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(6 * 16 + 1));
  ASSERT_EQ(tier.Start(again, 2 * 16), 2 * 16);
  EXPECT_TRUE(tier.load_status().ok());
  const TransferStep& step = tier.Step();
  EXPECT_EQ(step.load.cpu.size(), like_vllm() ? 2u : 4u) << "vLLM loads no block of the window";
}

TEST_P(BothWays, AShorterHitThatAWindowCannotServeIsRefused) {
  TestTier tier(Config({Full(), Window(32)}, 60), Way(Eager(30)));
  CacheRequest request = Request("a", Tokens(6 * 16 + 1));
  tier.Start(request, 0, 4 * 16);
  tier.Step();
  tier.Extend(request, 2 * 16 + 1);  // the first two blocks of the window stay unstored
  tier.Step();
  tier.Step();
  tier.CompleteStores();
  tier.Finish(request);
  tier.ForgetGpu();
  CacheRequest again = Request("b", Tokens(6 * 16 + 1));
  const PrefixHit hit = tier.gpu().GetComputedBlocks(again);
  ASSERT_EQ(tier.offload().Match(again, 0), 6 * 16);
  ASSERT_EQ(tier.Allocate(again, hit, 2 * 16), 2 * 16);
  EXPECT_EQ(tier.load_status().ok(), like_vllm());
  EXPECT_THAT(tier.offload().Inspect().matches, IsEmpty());
  EXPECT_EQ(tier.Step().load.cpu.size(), like_vllm() ? 2u : 0u);
}

TEST(SimpleAlloc, MoreTokensThanTheMatchAreRefused) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  CacheRequest request = Request("a", Tokens(33));
  const PrefixHit hit = tier.gpu().GetComputedBlocks(request);
  EXPECT_EQ(tier.offload().Match(request, 0), 0);
  EXPECT_EQ(tier.Allocate(request, hit, 16), 16);
  EXPECT_EQ(tier.load_status().code(), StatusCode::kFailedPrecondition);
}

// A match keeps its host blocks until UpdateAfterAlloc, also if the call loads no tokens.
TEST(SimpleAlloc, AMatchThatIsNotLoadedKeepsNoBlocks) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  tier.Serve(Request("a", Tokens(33)));
  tier.ForgetGpu();
  const int64_t free = tier.host_free();
  CacheRequest copy = Request("b", Tokens(33));
  EXPECT_EQ(tier.gpu().GetComputedBlocks(copy).tokens, 0);
  for (const int64_t external_tokens : {0, 48}) {
    ASSERT_EQ(tier.offload().Match(copy, 0), 32);
    EXPECT_LT(tier.host_free(), free);
    EXPECT_EQ(tier.offload().UpdateAfterAlloc(copy, external_tokens).ok(), external_tokens == 0);
    EXPECT_EQ(tier.host_free(), free) << external_tokens;
  }
  tier.offload().RequestFinished(copy, 0);
}

// The pool of an engine that leaves the ids of released blocks in its tables. vLLM's connector gets
// such tables.
class StaleTable final : public GpuBlockPool {
 public:
  StaleTable(std::vector<BlockId> table, std::map<BlockId, BlockContent> contents)
      : table_(std::move(table)), contents_(std::move(contents)) {}
  std::span<const BlockId> BlockTable(const CacheRequest&, GroupIdx) const override {
    return table_;
  }
  std::optional<BlockContent> ContentOf(BlockId block) const override {
    return contents_.at(block);
  }
  std::optional<BlockId> NextFree(std::optional<BlockId>) const override { return std::nullopt; }
  bool IsFree(BlockId) const override { return false; }
  void Pin(std::span<const BlockId>) override {}
  void Unpin(std::span<const BlockId>, bool) override {}

 private:
  std::vector<BlockId> table_;
  std::map<BlockId, BlockContent> contents_;
};

TEST_P(BothWays, ABlockThatHoldsTheContentOfAnotherRequestIsNotStored) {
  const CacheRequest request = engine::HashedRequest(32, 16);
  BlockContent others{request.chain[0], GroupIdx(0), 16};
  others.digest.data[5] = 77;
  StaleTable pool({BlockId(1), BlockId(2)},
                  {{BlockId(1), others}, {BlockId(2), {request.chain[1], GroupIdx(0), 32}}});
  SimpleOffloadConfig config = Way(Eager(9));
  config.cache = Config({Full()}, 20);
  auto offload = SimpleOffload::Create(config, pool);
  ASSERT_TRUE(offload.ok());
  ASSERT_TRUE((*offload)->UpdateAfterAlloc(request, 0).ok());
  const StepRequest scheduled[] = {{&request, 32}};
  TransferStep step;
  (*offload)->BuildStep(scheduled, step);
  EXPECT_EQ(ToIds(step.store.gpu), like_vllm() ? (Ids{1, 2}) : (Ids{2}));
}

// Three requests a, b and c have two blocks each; their first tokens are 0, 1000 and 2000. After
// they finish, the GPU's queue has their blocks in this order. Host memory has room for three
// blocks.
class LazyQueue : public BothWays {
 protected:
  LazyQueue() : tier_(Config({Full()}, 9), Way(Lazy(4, 2))) {
    tier_.Start(filler_);  // takes the two blocks that a, b and c leave
    tier_.Step();
    for (const TokenId first : {0, 1000, 2000}) {
      tier_.Start(requests_.emplace_back(Request(std::to_string(first), Tokens(32, first))));
    }
  }
  int64_t CopyUntilNothingIsLeft() {
    int64_t copies = 0;
    for (int i = 0; i < 20; ++i) {
      copies += std::ssize(tier_.Step().store.cpu);
      tier_.CompleteStores();
    }
    return copies;
  }

  CacheRequest& Probe(TokenId first) {
    return requests_.emplace_back(Request("probe", Tokens(33, first)));
  }

  CacheRequest filler_ = Request("filler", Tokens(32, 9000));
  std::list<CacheRequest> requests_;
  TestTier tier_;
};
INSTANTIATE_TEST_SUITE_P(Ways, LazyQueue, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "LikeVllm" : "Better"; });

TEST_P(LazyQueue, BlocksThatTheGpuTakesNextAreKeptInHostMemory) {
  tier_.Step();
  for (CacheRequest& request : requests_) tier_.Finish(request);
  EXPECT_EQ(CopyUntilNothingIsLeft(), 2) << "no more than the target";
  CacheRequest next = Request("next", Tokens(32, 5000));
  tier_.Start(next);
  // vLLM's scan continues after a's blocks, which have moved to the end of the queue. So the scan
  // does not visit b's blocks, which the GPU takes next.
  const TokenId taken = like_vllm() ? 1000 : 0;
  ASSERT_EQ(tier_.gpu().GetComputedBlocks(Probe(taken)).tokens, 0);
  EXPECT_EQ(tier_.Hit(Tokens(33, taken)), like_vllm() ? 0 : 32);
}

TEST_P(LazyQueue, BlocksThatWereCopiedAreTakenNext) {
  tier_.Step();
  for (CacheRequest& request : requests_) tier_.Finish(request);
  tier_.Step();
  tier_.CompleteStores();
  const auto next = tier_.gpu().gpu_blocks().NextFree(std::nullopt);
  const BlockId copied = tier_.step().store.gpu[0];
  EXPECT_EQ(next == copied, !like_vllm());
}

// The GPU takes six cached blocks next, and the target is ten copied blocks. Host memory has room
// for three blocks.
TEST(SimpleLazy, ATierSmallerThanItsTargetCopiesAsManyBlocksAsFitAndThenStops) {
  TestTier tier(Config({Full()}, 7), Lazy(4, 10));
  CacheRequest request = Request("a", Tokens(6 * 16));
  tier.Start(request);
  tier.Step();
  tier.Finish(request);
  int64_t copies = 0;
  for (int i = 0; i < 10; ++i) {
    copies += std::ssize(tier.Step().store.cpu);
    tier.CompleteStores();
  }
  EXPECT_EQ(copies, 3);
  EXPECT_FALSE(tier.offload().has_pending_work());
}

// Host memory holds p, x and y, and p is the oldest. Only p is still on the GPU.
TEST(SimpleLazy, ABlockThatTheGpuTakesNextIsNotEvictedForLaterOnes) {
  TestTier tier(Config({Full()}, 5), Lazy(4, 10));
  tier.Serve(Request("p", Tokens(16)));
  CacheRequest holder = Request("holder", Tokens(17));
  tier.Start(holder);
  tier.Serve(Request("x", Tokens(16, 1000)));
  tier.Serve(Request("y", Tokens(16, 2000)));
  ASSERT_EQ(tier.HostKeys(), 3);
  CacheRequest next = Request("z", Tokens(16, 3000));
  tier.Start(next);
  tier.Step();
  tier.Finish(next);
  tier.Finish(holder);
  int64_t copies = 0;
  for (int i = 0; i < 10; ++i) {
    copies += std::ssize(tier.Step().store.cpu);
    tier.CompleteStores();
  }
  EXPECT_EQ(copies, 1);
  tier.ForgetGpu();
  EXPECT_EQ(tier.Hit(Tokens(17)), 16) << "p stays in host memory";
  EXPECT_EQ(tier.Hit(Tokens(17, 3000)), 16);
  EXPECT_EQ(tier.Hit(Tokens(17, 1000)), 0);
}

TEST(SimpleLazy, AFailedStoreIsTriedAgainWhenTheBlockHoldsSomethingElse) {
  TestTier tier(Config({Full()}, 3), Lazy(9, 10));
  const auto serve = [&tier](CacheRequest request, bool success) {
    int64_t copies = 0;
    tier.Start(request);
    tier.Step();
    tier.Finish(request);
    for (int i = 0; i < 10; ++i) {
      copies += std::ssize(tier.Step().store.cpu);
      tier.CompleteStores(success);
    }
    return copies;
  };
  EXPECT_EQ(serve(Request("a", Tokens(32)), false), 2);
  EXPECT_FALSE(tier.offload().has_pending_work());
  EXPECT_EQ(tier.HostKeys(), 0);
  EXPECT_EQ(serve(Request("b", Tokens(32, 1000)), true), 2);
  EXPECT_EQ(tier.HostKeys(), 2);
}

}  // namespace
}  // namespace kvcast::offload
