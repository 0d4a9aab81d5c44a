// An answer contains the reusable prefix, the kind of hit (full, partial or miss), the limiting
// group, and the prefixes that are usable after loads from lower tiers.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

WorkerMatch Ask(const OneWorker& worker, int64_t tokens, int64_t hash_block_size = 16) {
  const auto matches =
      worker.index.Match(Hashes(1, tokens / hash_block_size), hash_block_size, tokens);
  return matches.empty() ? WorkerMatch() : matches[0];
}

TEST(Answer, AHitOfTheLongestPossiblePrefixIsFull) {
  OneWorker worker(Registered({Full(), Window(32)}));
  worker.Apply(Batch(Store(Hashes(1, 4), 0), Store(Hashes(1, 4), 1)));
  for (const int64_t tokens : {64, 63, 50, 49}) {
    const WorkerMatch match = Ask(worker, tokens);
    EXPECT_EQ(match.hit, HitKind::kFull) << tokens;
    EXPECT_EQ(match.gpu_tokens, 48);
    EXPECT_EQ(match.recompute_tokens, tokens - 48);
    EXPECT_EQ(match.limiting_group, std::nullopt);
  }
  EXPECT_EQ(Ask(worker, 65).gpu_tokens, 64);
  EXPECT_EQ(Ask(worker, 81).hit, HitKind::kPartial);
}

TEST(Answer, APartialHitNamesTheLimitingGroup) {
  OneWorker worker(Registered({Window(32), Full()}));
  worker.Apply(Batch(Store(Hashes(1, 6), 1), Store(Hashes(1, 3), 0)));
  const WorkerMatch match = Ask(worker, 100);
  EXPECT_EQ(match.hit, HitKind::kPartial);
  EXPECT_EQ(match.gpu_tokens, 48);
  EXPECT_EQ(match.per_group_tokens, (std::vector<int64_t>{48, 96}));
  EXPECT_EQ(match.limiting_group, 0);
  EXPECT_EQ(match.recompute_tokens, 52);
}

TEST(Answer, AMissNamesTheLimitingGroup) {
  OneWorker worker(Registered({Full(), Mamba(16)}));
  worker.Apply(Batch(Store(Hashes(1, 6), 0)));
  const WorkerMatch match = Ask(worker, 100);
  EXPECT_EQ(match.hit, HitKind::kMiss);
  EXPECT_EQ(match.limiting_group, 1);
  EXPECT_EQ(match.recompute_tokens, 100);
}

TEST(Answer, NoGroupIsLimitingIfNoGroupHasTheBlocks) {
  OneWorker worker(Registered({Full(), Window(32)}));
  EXPECT_EQ(Ask(worker, 100).hit, HitKind::kMiss);
  EXPECT_EQ(Ask(worker, 100).limiting_group, std::nullopt);
  worker.Apply(Batch(Store(Hashes(1, 3), 0), Store(Hashes(1, 3), 1)));
  EXPECT_EQ(Ask(worker, 100).hit, HitKind::kPartial);
  EXPECT_EQ(Ask(worker, 100).limiting_group, std::nullopt);
}

// A chunk that begins at the end of the prefix needs no block before it.
TEST(Answer, ChunksMayServeAPrefixWithoutBlocks) {
  OneWorker worker(Registered({Chunked(64)}));
  EXPECT_EQ(Ask(worker, 65).gpu_tokens, 64);
  EXPECT_EQ(Ask(worker, 64).gpu_tokens, 0);
}

TEST(Answer, TheOffloadRuleOfAWorkerWithoutBlocksIsUnknownToo) {
  OneWorker unknown(Registered({Full()}));
  EXPECT_EQ(Ask(unknown, 65).unknown, 0u);
  EXPECT_EQ(Ask(unknown, 65).unknown_with_cpu,
            static_cast<uint32_t>(UnknownProperty::kOffloadRule));
  WorkerConfig config = Registered({Full()});
  config.offload_rule = OffloadRule::kConnector;
  const OneWorker known(config);
  EXPECT_EQ(Ask(known, 65).unknown_with_cpu, 0u);
}

// Full attention reaches 48 tokens. Mamba states end at 16 and 64 tokens. Window blocks end at 16,
// 48 and 80 tokens. Each group alone reaches further than all groups together. The group that
// reaches least is not the limiting group.
TEST(Answer, TheLimitingGroupNeedNotReachTheLeast) {
  OneWorker worker(Registered({Full(), Mamba(16), Window(16)}));
  worker.Apply(Batch(Store(Hashes(1, 3), 0), Store(Hashes(1, 1), 1), Store(Hashes(4, 1), 1),
                     Store(Hashes(1, 1), 2), Store(Hashes(3, 1), 2), Store(Hashes(5, 1), 2)));
  const WorkerMatch match = Ask(worker, 100);
  EXPECT_EQ(match.per_group_tokens, (std::vector<int64_t>{48, 64, 80}));
  EXPECT_EQ(match.gpu_tokens, 16);
  EXPECT_EQ(match.limiting_group, 1);
}

TEST(Answer, CpuBlocksBehindTheHitAreAdded) {
  OneWorker worker(Registered({Full()}));
  worker.Apply(Batch(Store(Hashes(1, 2)), StoreIn("CPU", Hashes(3, 2))));
  EXPECT_EQ(Ask(worker, 100).gpu_tokens, 32);
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 64);
  EXPECT_EQ(Ask(worker, 100).with_storage_tokens, 64);
  worker.Apply(Batch(StoreIn("STORAGE", Hashes(5, 1))));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 64);
  EXPECT_EQ(Ask(worker, 100).with_storage_tokens, 80);
}

TEST(Answer, GpuBlocksBehindAGapAreNotJoinedByLoads) {
  OneWorker worker(Registered({Full()}));
  worker.Apply(Batch(Store(Hashes(1, 2)), StoreIn("CPU", Hashes(3, 1)), Store(Hashes(4, 2))));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 48);
}

TEST(Answer, WindowsNeedTheirLastBlocksOnly) {
  OneWorker worker(Registered({Full(), Window(32)}));
  BlockStored window = StoreIn("CPU", Hashes(5, 2));
  window.group_idx = 1;
  worker.Apply(Batch(StoreIn("CPU", Hashes(1, 6)), window));
  EXPECT_EQ(Ask(worker, 100).gpu_tokens, 0);
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 96);
  worker.Apply(Batch(RemoveFrom("CPU", Hashes(1, 1))));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 0);
}

// The connector looks up ceil(W / block) blocks. The engine's own lookup needs ceil((W - 1) /
// block) blocks, which is one block less here.
TEST(Answer, AWindowOneTokenLongerNeedsOneMoreBlock) {
  OneWorker worker(Registered({Full(), Window(33)}));
  BlockStored window = StoreIn("CPU", Hashes(5, 2));
  window.group_idx = 1;
  worker.Apply(Batch(StoreIn("CPU", Hashes(1, 6)), window));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 0);
  window.block_hashes = Hashes(4, 1);
  worker.Apply(Batch(window));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 96);
}

// OffloadScheduler looks up only the blocks that a load reads.
TEST(Answer, TheOffloadRuleDecidesTheBlocksOfAWindow) {
  WorkerConfig config = Registered({Full(), Window(33)});
  config.offload_rule = OffloadRule::kOffloadScheduler;
  OneWorker worker(config);
  BlockStored window = StoreIn("CPU", Hashes(5, 2));
  window.group_idx = 1;
  worker.Apply(Batch(StoreIn("CPU", Hashes(1, 6)), window));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 96);
  worker.Apply(Batch(RemoveFrom("CPU", Hashes(6, 1))));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 0) << "80 tokens would need block 4";
}

TEST(Answer, AWindowMayUseBlocksOfTheGpuHit) {
  OneWorker worker(Registered({Full(), Window(64)}));
  BlockStored window = StoreIn("CPU", Hashes(4, 1));
  window.group_idx = 1;
  worker.Apply(
      Batch(Store(Hashes(1, 3), 0), Store(Hashes(1, 3), 1), StoreIn("CPU", Hashes(4, 1)), window));
  EXPECT_EQ(Ask(worker, 100).gpu_tokens, 48);
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 64);
}

TEST(Answer, LoadsMayServeAllButTheLastToken) {
  OneWorker worker(Registered({Full()}));
  worker.Apply(Batch(Store(Hashes(1, 4)), StoreIn("CPU", Hashes(1, 4))));
  EXPECT_EQ(Ask(worker, 64).gpu_tokens, 48);
  EXPECT_EQ(Ask(worker, 64).with_cpu_tokens, 63);
}

// The blocks are in two runs with the same holders. The CPU tier holds blocks of the second run
// only.
TEST(Answer, LoadsBehindTheFirstRunAreSeen) {
  OneWorker worker(Registered({Full()}));
  worker.Apply(Batch(Store(Hashes(1, 128)), StoreIn("CPU", Hashes(1, 128))));
  worker.Apply(Batch(RemoveFrom("CPU", Hashes(1, 64))));
  EXPECT_EQ(Ask(worker, 128 * 16).gpu_tokens, 127 * 16);
  EXPECT_EQ(Ask(worker, 128 * 16).with_cpu_tokens, 128 * 16 - 1);
}

// A pool that mirrors the GPU pool has the lookup rule of the GPU. The lookup begins at the end of
// the GPU hit and needs no block before this position.
class MirroredPool : public ::testing::Test {
 protected:
  static WorkerConfig Config(std::vector<GroupSpec> groups) {
    WorkerConfig config = Registered(std::move(groups));
    config.offload_rule = OffloadRule::kMirroredPool;
    return config;
  }
  static BlockStored InGroup(BlockStored stored, int64_t group) {
    stored.group_idx = group;
    return stored;
  }
};

TEST_F(MirroredPool, AWindowNeedsTheBlocksOfTheEnginesOwnRule) {
  OneWorker worker(Config({Full(), Window(33)}));
  worker.Apply(Batch(StoreIn("CPU", Hashes(1, 6)), InGroup(StoreIn("CPU", Hashes(5, 2)), 1)));
  EXPECT_EQ(Ask(worker, 100).gpu_tokens, 0);
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 96);
}

TEST_F(MirroredPool, AWindowThatReachesTheHitNeedsNoMore) {
  OneWorker worker(Config({Full(), Window(64)}));
  worker.Apply(Batch(Store(Hashes(1, 3), 0), Store(Hashes(1, 3), 1), StoreIn("CPU", Hashes(4, 2)),
                     InGroup(StoreIn("CPU", Hashes(4, 2)), 1)));
  EXPECT_EQ(Ask(worker, 100).gpu_tokens, 48);
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 80);
  worker.Apply(Batch(InGroup(StoreIn("CPU", Hashes(6, 1)), 1)));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 80);
}

TEST_F(MirroredPool, ChunksCountFromTheStartOfThePrompt) {
  const GroupSpec chunked{
      .kind = SpecKind::kChunkedLocalAttention, .block_size = 16, .chunk_size = 64};
  OneWorker worker(Config({Full(), chunked}));
  worker.Apply(Batch(Store(Hashes(1, 2), 0), Store(Hashes(1, 2), 1), StoreIn("CPU", Hashes(3, 4)),
                     InGroup(StoreIn("CPU", Hashes(6, 1)), 1)));
  EXPECT_EQ(Ask(worker, 100).gpu_tokens, 32);
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 64) << "the chunk after 64 tokens has no block 5";
  worker.Apply(Batch(InGroup(StoreIn("CPU", Hashes(5, 1)), 1)));
  EXPECT_EQ(Ask(worker, 100).with_cpu_tokens, 96);
}

// vLLM's pool counts chunks from the end of the GPU hit, and finds parts of Mamba blocks. The pool
// of this library does neither.
TEST_F(MirroredPool, TheEndOfALoadIsNotKnownWhereVllmsPoolDiffers) {
  const auto unknown = [](std::vector<GroupSpec> groups, EngineRules rules) {
    WorkerConfig config = Config(std::move(groups));
    config.alignment = 16;
    config.rules = rules;
    OneWorker worker(config);
    worker.Apply(Batch(StoreIn("CPU", Hashes(1, 4)), InGroup(StoreIn("CPU", Hashes(1, 4)), 1)));
    return Ask(worker, 100).unknown_with_cpu;
  };
  constexpr auto kLoadEnd = static_cast<uint32_t>(UnknownProperty::kLoadEnd);
  const GroupSpec chunked{
      .kind = SpecKind::kChunkedLocalAttention, .block_size = 16, .chunk_size = 64};
  const GroupSpec mamba{.kind = SpecKind::kMamba, .block_size = 64};
  GroupSpec eagle = Full();
  eagle.eagle = true;
  EXPECT_EQ(unknown({Full(), Window(33)}, EngineRules::kV033), 0u);
  EXPECT_EQ(unknown({Full(), chunked}, EngineRules::kV033), kLoadEnd);
  EXPECT_EQ(unknown({Full(), mamba}, EngineRules::kV033), kLoadEnd);
  EXPECT_EQ(unknown({eagle, Full()}, EngineRules::kV032), 0u);
  EXPECT_EQ(unknown({eagle, Full()}, EngineRules::kMain2026August), kLoadEnd);
}

TEST_F(MirroredPool, TheLastTokenIsComputedAndWholeBlocksAreLoaded) {
  OneWorker worker(Config({Full()}));
  worker.Apply(Batch(Store(Hashes(1, 2)), StoreIn("CPU", Hashes(1, 4))));
  EXPECT_EQ(Ask(worker, 64).with_cpu_tokens, 48);
  EXPECT_EQ(Ask(worker, 65).with_cpu_tokens, 64);
}

// A query by hashes may state any prompt length. The cost must depend only on the number of hashes.
TEST_F(MirroredPool, APromptOfUnboundedLengthCostsNoMoreThanItsHashes) {
  OneWorker worker(Config({Full(), Window(32)}));
  worker.Apply(Batch(Store(Hashes(1, 2), 0), Store(Hashes(1, 2), 1), StoreIn("CPU", Hashes(3, 2)),
                     InGroup(StoreIn("CPU", Hashes(3, 2)), 1)));
  const auto matches = worker.index.Match(Hashes(1, 4), 16, int64_t{1} << 62);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].gpu_tokens, 32);
  EXPECT_EQ(matches[0].with_cpu_tokens, 64);
}

TEST_F(MirroredPool, AHitInsideABlockIsNotContinued) {
  // Mamba states have blocks of 64 tokens. Hits may end at every hash unit of 16 tokens.
  WorkerConfig config = Config({Full(), Mamba(64)});
  config.hash_block_size = 16;
  config.alignment = 16;
  OneWorker fine(config);
  ASSERT_TRUE(fine.added.ok());
  fine.Apply(Batch(Store(Hashes(1, 3), 0), Store(Hashes(3, 1), 1), StoreIn("CPU", Hashes(1, 8)),
                   InGroup(StoreIn("CPU", Hashes(4, 1)), 1),
                   InGroup(StoreIn("CPU", Hashes(8, 1)), 1)));
  EXPECT_EQ(Ask(fine, 200).gpu_tokens, 48);
  EXPECT_EQ(Ask(fine, 200).with_cpu_tokens, 48);
}

TEST(Answer, ChunksAreNamedByTheirLastBlock) {
  WorkerConfig config = Registered({Full()});
  config.blocks_per_chunk = 3;
  OneWorker worker(config);
  ASSERT_TRUE(worker.added.ok());
  worker.Apply(Batch(StoreIn("CPU", {Hashes(3, 1)[0], Hashes(6, 1)[0], Hashes(8, 1)[0]})));
  EXPECT_EQ(Ask(worker, 200).with_cpu_tokens, 96);
  config.blocks_per_chunk = 0;
  EXPECT_FALSE(OneWorker(config).added.ok());
}

TEST(Answer, WithoutLowerTiersLoadsAddNothing) {
  OneWorker worker(Registered({Full()}));
  worker.Apply(Batch(Store(Hashes(1, 4))));
  const WorkerMatch match = Ask(worker, 100);
  EXPECT_EQ(match.with_cpu_tokens, 64);
  EXPECT_EQ(match.with_storage_tokens, 64);
}

}  // namespace
}  // namespace kvcast::testing
