// A hit of several groups respects the evictions of each group.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

// Full + SWA + SWA (window 32), 21 blocks, prompts of 55 tokens that share the first 48 tokens. The
// first request has the blocks [1-4], [5-8], [9-12]. hN is the block at position N of a group.
class FullAndTwoWindows : public ::testing::Test {
 protected:
  FullAndTwoWindows() : engine_(Config({Full(), Window(32), Window(32)}, 21)) {
    EXPECT_EQ(engine_.Start(first_), (IdLists{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}));
  }

  int64_t HitBlocks() { return engine_.Lookup(second_).tokens / 16; }

  TestEngine engine_;
  CacheRequest first_ = Request("0", Concat(Tokens(48), Tokens(7, 1000)));
  CacheRequest second_ = Request("1", Concat(Tokens(48), Tokens(5, 2000)));
};

// The second request hits ([1,2,3],[0,6,7],[0,10,11]) and gets the new blocks [13], [14], [15].
TEST_F(FullAndTwoWindows, AHitNeedsOnlyTheLastBlocksOfAWindow) {
  EXPECT_EQ(ToIds(engine_.Lookup(second_).blocks), (IdLists{{1, 2, 3}, {0, 6, 7}, {0, 10, 11}}));
  EXPECT_EQ(engine_.Start(second_), (IdLists{{13}, {14}, {15}}));
}

// A prompt ends at a block boundary, and its last block is cached. A hit never contains this block.
// From v0.32 on, the lookup drops this block for the draft head, so the hit is not shortened.
// Earlier rules drop the block before it.
TEST(EagleGroups, LookAtTheLastBlockOfAPromptFromV032On) {
  for (const auto& [rules, hit] :
       {std::pair{EngineRules::kMain2026August, 32}, std::pair{EngineRules::kV032, 48}}) {
    CacheConfig config = Config({Eagle(Full()), Eagle(Window(32))}, 21);
    config.rules = rules;
    TestEngine engine(config);
    CacheRequest first = Request("0", Tokens(64));
    engine.Start(first);
    CacheRequest second = Request("1", Tokens(64));
    EXPECT_EQ(engine.Lookup(second).tokens, hit);
  }
}

TEST(CacheManagerGroups, OutsidePrefixCachingAreRefused) {
  CacheConfig config = Config({Full(), Window(32)}, 21);
  config.groups[1].prefix_cacheable = false;
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256, "0");
  ASSERT_TRUE(hasher.ok());
  const auto manager = CacheManager::Create(config, std::move(hasher).value(), {});
  ASSERT_FALSE(manager.ok());
  EXPECT_NE(manager.status().message().find("groups[1].prefix_cacheable"), std::string::npos);
}

// After the eviction of h0 in the SWA groups the hit has 3 blocks.
TEST_F(FullAndTwoWindows, AnEvictedBlockOutsideTheWindowDoesNotShortenTheHit) {
  engine_.Evict(5);
  engine_.Evict(9);
  EXPECT_EQ(HitBlocks(), 3);
}

// After the eviction of h0 in full attention the hit has 0 blocks.
TEST_F(FullAndTwoWindows, FullAttentionNeedsItsFirstBlock) {
  engine_.Evict(1);
  EXPECT_EQ(HitBlocks(), 0);
}

// After the eviction of h2 in any single group the hit has 2 blocks.
TEST_F(FullAndTwoWindows, WithoutTheLastBlockOfAnyGroupTheHitIsOneBlockShorter) {
  for (const uint32_t block : {3u, 7u, 11u}) {
    TestEngine engine(Config({Full(), Window(32), Window(32)}, 21));
    CacheRequest first = first_;
    first.chain.clear();
    engine.Start(first);
    engine.Evict(block);
    EXPECT_EQ(engine.Lookup(second_).tokens / 16, 2) << block;
  }
}

// After the eviction of h2 in full attention and h0 in both SWA groups the hit has 0 blocks.
TEST_F(FullAndTwoWindows, AWindowAtTheStartNeedsAllItsBlocks) {
  engine_.Evict(3);
  engine_.Evict(5);
  engine_.Evict(9);
  EXPECT_EQ(HitBlocks(), 0);
}

// EAGLE, full + SWA + SWA (window 48), 31 blocks in the pool, 6 full blocks: the hit has 5 blocks,
// ([1..5],[0,0,10,11,12],[0,0,17,18,19]).
TEST(EaglePrefix, LeavesTheLastBlockToBeComputedAgain) {
  TestEngine engine(Config({Eagle(Full()), Eagle(Window(48)), Eagle(Window(48))}, 31));
  CacheRequest first = Request("0", Concat(Tokens(96), Tokens(7, 1000)));
  engine.Start(first);
  CacheRequest second = Request("1", Concat(Tokens(96), Tokens(5, 2000)));
  const PrefixHit hit = engine.Lookup(second);
  EXPECT_EQ(hit.tokens, 80);
  EXPECT_EQ(ToIds(hit.blocks), (IdLists{{1, 2, 3, 4, 5}, {0, 0, 10, 11, 12}, {0, 0, 17, 18, 19}}));
}

// The same configuration. Each eviction starts from a full cache. The hits have 5, 0, 4, 4, 3, 3, 4
// blocks.
TEST(EaglePrefix, EvictionsShortenTheHitByTheNeedsOfTheirGroup) {
  // Blocks h0 to h5 are 1 to 6 of full attention, 8 to 13 and 15 to 20 of the windows.
  const std::vector<std::pair<Ids, int64_t>> rows = {
      {{8, 15}, 5},      // h0 of both window groups: no window reaches h0
      {{1}, 0},          // h0 of full attention
      {{6, 13, 20}, 4},  // h5 of all groups
      {{6}, 4},          // h5 of full attention
      {{12}, 3},         // h4 of one window
      {{19}, 3},         // h4 of the other window
      {{6, 8, 15}, 4},   // h5 of full attention, h0 of both windows
  };
  for (const auto& [evicted, blocks] : rows) {
    TestEngine engine(Config({Eagle(Full()), Eagle(Window(48)), Eagle(Window(48))}, 31));
    CacheRequest first = Request("0", Concat(Tokens(96), Tokens(7, 1000)));
    ASSERT_EQ(
        engine.Start(first),
        (IdLists{{1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14}, {15, 16, 17, 18, 19, 20, 21}}));
    for (const uint32_t block : evicted) engine.Evict(block);
    CacheRequest second = Request("1", Concat(Tokens(96), Tokens(5, 2000)));
    EXPECT_EQ(engine.Lookup(second).tokens, blocks * 16) << ::testing::PrintToString(evicted);
  }
}

// EAGLE, 3 full blocks, the same prompt again: the hit has 1 block.
TEST(EaglePrefix, AWholePromptOfThreeBlocksHitsOne) {
  TestEngine engine(Config({Eagle(Full())}, 11));
  CacheRequest first = Request("0", Tokens(48));
  engine.Start(first);
  CacheRequest same = Request("1", Tokens(48));
  EXPECT_EQ(engine.Lookup(same).tokens, 16);
}

// EAGLE, 37 tokens, full attention: the hit has 1 block.
TEST(EaglePrefix, APromptThatEndsInsideABlockLosesItsLastFullBlock) {
  TestEngine engine(Config({Eagle(Full())}, 11));
  CacheRequest first = Request("0", Tokens(37));
  engine.Start(first);
  CacheRequest same = Request("1", Tokens(37));
  EXPECT_EQ(engine.Lookup(same).tokens, 16);
}

// EAGLE, 37 tokens, SWA with window 16: the hit has 1 block, and 0 after the eviction of h0.
TEST(EaglePrefix, AWindowNeedsTheBlockItGivesUp) {
  TestEngine engine(Config({Eagle(Window(16))}, 11));
  CacheRequest first = Request("0", Tokens(37));
  engine.Start(first);
  CacheRequest same = Request("1", Tokens(37));
  EXPECT_EQ(engine.Lookup(same).tokens, 16);
  engine.Evict(1);
  EXPECT_EQ(engine.Lookup(same).tokens, 0);
}

// A window of one token reads nothing before the boundary, and EAGLE drops the block after the
// boundary. The hit needs only the dropped block.
TEST(EaglePrefix, AWindowOfOneTokenNeedsOnlyTheBlockItGivesUp) {
  TestEngine engine(Config({Eagle(Window(1))}, 11));
  CacheRequest first = Request("0", Tokens(80));
  engine.Start(first);
  engine.Evict(1);
  CacheRequest same = Request("1", Tokens(80));
  const PrefixHit hit = engine.Lookup(same);
  EXPECT_EQ(hit.tokens, 48);
  EXPECT_EQ(ToIds(hit.blocks), (IdLists{{0, 0, 0}}));
  EXPECT_EQ(hit.shared_prefix_boundary, 0);
}

// Full with block size 32, SWA with block size 16 and window 32, 160 tokens, 112 allocated: blocks
// [1..4], [5..11]. A lookup of 113 tokens hits 96 tokens, 3 and 6 blocks. After the eviction of h5
// and h4 in the SWA group, the lookup hits 64 tokens.
TEST(MixedBlockSizes, HitsLieOnTheCommonMultiple) {
  TestEngine engine(Config({Full(32), Window(32, 16)}, 40));
  CacheRequest first = Request("0", Tokens(160));
  ASSERT_TRUE(engine.Allocate(first, {.new_tokens = 112}));
  EXPECT_EQ(engine.last_new(), (IdLists{{1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11}}));
  CacheRequest second = Request("1", Tokens(113));
  const PrefixHit hit = engine.Lookup(second);
  EXPECT_EQ(hit.tokens, 96);
  EXPECT_EQ(ToIds(hit.blocks), (IdLists{{1, 2, 3}, {0, 0, 0, 0, 9, 10}}));
  EXPECT_EQ(CachedPositions(engine.cache(), first, GroupIdx(1)), (Ids{0, 1, 2, 3, 4, 5}));
  engine.Evict(10);
  engine.Evict(9);
  EXPECT_EQ(engine.Lookup(second).tokens, 64);
}

// Returns the cached blocks of the window group for a prompt that was computed in one step.
Ids CachedWindowBlocks(GroupSpec window, std::optional<int64_t> retention, int64_t tokens,
                       EngineRules rules = EngineRules::kV033) {
  CacheConfig config = Config({Full(32), window}, 100);
  config.retention_interval = retention;
  config.rules = rules;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(tokens));
  engine.Start(request);
  return CachedPositions(engine.cache(), request, GroupIdx(1));
}

// Cached blocks of the SWA group. Full has block size 32. SWA block size 8, window 8, 64 tokens,
// retention unset: {3,7}. SWA block size 16, window 32, 112 tokens: {0..5}. SWA block size 8,
// window 8, 128 tokens, retention 64: {7,11,15}; retention 0: {11}. EAGLE, 127 tokens, retention 0:
// {11,12} up to 2026-08, and in later releases the blocks one unit of the grid before.
TEST(MixedBlockSizes, WindowsCacheOnlyBlocksThatAHitOnTheGridCanUse) {
  EXPECT_EQ(CachedWindowBlocks(Window(8, 8), std::nullopt, 64), (Ids{3, 7}));
  EXPECT_EQ(CachedWindowBlocks(Window(32, 16), std::nullopt, 112), (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(CachedWindowBlocks(Window(8, 8), 64, 128), (Ids{7, 11, 15}));
  EXPECT_EQ(CachedWindowBlocks(Window(8, 8), 0, 128), (Ids{11}));
  const GroupSpec eagle = Eagle(Window(8, 8));
  EXPECT_EQ(CachedWindowBlocks(eagle, 0, 127, EngineRules::kMain2026August), (Ids{11, 12}));
  EXPECT_EQ(CachedWindowBlocks(eagle, 0, 127), (Ids{7, 8}));
}

// SWA block size 8, window 8, 128 tokens, retention 0: a replay hits 96 tokens, a request of 96
// tokens hits 0.
TEST(Retention0, ServesAReplayOfThePromptButNoShorterPrompt) {
  CacheConfig config = Config({Full(32), Window(8, 8)}, 100);
  config.retention_interval = 0;
  TestEngine engine(config);
  CacheRequest first = Request("0", Tokens(128));
  engine.Start(first);
  CacheRequest replay = Request("1", Tokens(128));
  EXPECT_EQ(engine.Lookup(replay).tokens, 96);
  CacheRequest shorter = Request("2", Tokens(96));
  EXPECT_EQ(engine.Lookup(shorter).tokens, 0);
}

// EAGLE SWA, 127 tokens, retention 0: a replay hits 96 tokens up to 2026-08, with tables of [3,12]
// blocks. Later releases hit 64 tokens, with [2,8] blocks.
TEST(Retention0, ServesAReplayWithEagleToo) {
  for (const auto& [rules, units] :
       {std::pair{EngineRules::kMain2026August, 3u}, std::pair{EngineRules::kV033, 2u}}) {
    CacheConfig config = Config({Full(32), Eagle(Window(8, 8))}, 100);
    config.retention_interval = 0;
    config.rules = rules;
    TestEngine engine(config);
    CacheRequest first = Request("0", Tokens(127));
    engine.Start(first);
    CacheRequest replay = Request("1", Tokens(127));
    const PrefixHit hit = engine.Lookup(replay);
    EXPECT_EQ(hit.tokens, 32 * units);
    EXPECT_EQ(hit.blocks[0].size(), units);
    EXPECT_EQ(hit.blocks[1].size(), 4 * units);
  }
}

// SWA only, block size 16, window 16, 256 tokens. Retention unset keeps all blocks, 64 keeps
// {3,7,11,14,15}, 0 keeps {14}. A replay hits 240 tokens.
TEST(Retention, AWindowAloneKeepsItsCheckpointsAndTheReplayBoundary) {
  Ids all(16);
  std::iota(all.begin(), all.end(), 0u);
  const std::vector<std::pair<std::optional<int64_t>, Ids>> rows = {
      {std::nullopt, all}, {64, {3, 7, 11, 14, 15}}, {0, {14}}};
  for (const auto& [retention, kept] : rows) {
    CacheConfig config = Config({Window(16)}, 100);
    config.retention_interval = retention;
    TestEngine engine(config);
    CacheRequest first = Request("0", Tokens(256));
    engine.Start(first);
    EXPECT_EQ(CachedPositions(engine.cache(), first, GroupIdx(0)), kept);
    CacheRequest replay = Request("1", Tokens(256));
    EXPECT_EQ(engine.Lookup(replay).tokens, 240);
  }
}

// Two requests share 4 blocks (SWA, retention 0). If the second request does not pin the shared
// boundary, a third request hits 0 tokens, otherwise 64 tokens.
TEST(SharedPrefixBoundary, PinsThePrefixThatOneGroupHasAndAnotherLacks) {
  for (const bool pinned : {false, true}) {
    CacheConfig config = Config({Full(), Window(16)}, 100);
    config.retention_interval = 0;
    TestEngine engine(config);
    CacheRequest first = Request("0", Concat(Tokens(64), Tokens(64, 1000)));
    engine.Start(first);
    CacheRequest second = Request("1", Concat(Tokens(64), Tokens(64, 2000)));
    PrefixHit hit = engine.Lookup(second);
    EXPECT_EQ(hit.tokens, 0);
    EXPECT_EQ(hit.shared_prefix_boundary, 64);
    if (!pinned) hit.shared_prefix_boundary = 0;
    ASSERT_TRUE(engine.Allocate(second, {.new_tokens = 128, .hit = &hit}));
    CacheRequest third = Request("2", Concat(Tokens(64), Tokens(64, 3000)));
    EXPECT_EQ(engine.Lookup(third).tokens, pinned ? 64 : 0);
  }
}

// Groups as in DeepSeek-V4, with block sizes 256/64/8/4 (hash_block_size 4), retention 1024, fills
// of 4096 tokens. A lookup of 1800 tokens hits 1024, with tables of [4,16,128,256] blocks, also
// after a second fill.
TEST(MixedBlockSizes, FourSizesMeetAtTheirCheckpoints) {
  GroupSpec mla = Full(256);
  mla.kind = SpecKind::kMlaAttention;
  CacheConfig config = Config({mla, Window(128, 64), Window(128, 8), Window(64, 4)}, 5000);
  config.retention_interval = 1024;
  TestEngine engine(config);
  for (const TokenId first_token : {0, 50000}) {
    CacheRequest request = Request("fill", Tokens(4096, first_token));
    engine.Start(request);
    engine.Free(request);
    CacheRequest probe = Request("probe", Tokens(1800));
    const PrefixHit hit = engine.Lookup(probe);
    EXPECT_EQ(hit.tokens, 1024);
    ASSERT_EQ(hit.blocks.size(), 4u);
    EXPECT_EQ(hit.blocks[0].size(), 4u);
    EXPECT_EQ(hit.blocks[1].size(), 16u);
    EXPECT_EQ(hit.blocks[2].size(), 128u);
    EXPECT_EQ(hit.blocks[3].size(), 256u);
  }
}

}  // namespace
}  // namespace kvcast::engine
