// The hints of a router. CacheRequest::keep_prefix_tokens is the length of a prefix. The cache
// keeps the blocks that a hit of this length needs, so the next request with this prefix hits.
// CacheRequest::will_not_return_after is a position. After the request has ended, its blocks after
// this position are evicted before all other cached blocks.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

// A prompt that begins with `shared` tokens and goes on with 64 tokens of its own.
CacheRequest Sharing(const char* id, uint32_t shared, TokenId own) {
  return Request(id, Concat(Tokens(shared), Tokens(64, own)));
}

CacheConfig FullAnd(GroupSpec other) {
  CacheConfig config = Config({Full(), other}, 100);
  config.retention_interval = 0;
  return config;
}

int64_t BoundaryOf(TestEngine& engine, CacheRequest& request, int64_t hint) {
  request.keep_prefix_tokens = hint;
  return engine.Lookup(request).shared_prefix_boundary;
}

TEST(KeepPrefix, KeepsTheWindowThatTheNextRequestNeeds) {
  for (const int64_t hint : {0, 64}) {
    TestEngine engine(FullAnd(Window(16)));
    CacheRequest first = Sharing("0", 64, 1000);
    first.keep_prefix_tokens = hint;
    engine.Start(first);
    CacheRequest second = Sharing("1", 64, 2000);
    EXPECT_EQ(engine.Lookup(second).tokens, hint);
  }
}

TEST(KeepPrefix, KeepsTheStateThatTheNextRequestNeeds) {
  for (const int64_t hint : {0, 32}) {
    TestEngine engine(FullAnd(Mamba(MambaMode::kAlign)));
    CacheRequest first = Sharing("0", 32, 1000);
    first.keep_prefix_tokens = hint;
    const PrefixHit hit = engine.Lookup(first);
    EXPECT_EQ(hit.shared_prefix_boundary, hint) << "the prefill stops here";
    ASSERT_TRUE(engine.Allocate(first, {.new_tokens = 32, .hit = &hit}));
    ASSERT_TRUE(engine.Allocate(first, {.computed_tokens = 32, .new_tokens = 64}));
    CacheRequest second = Sharing("1", 32, 2000);
    EXPECT_EQ(engine.Lookup(second).tokens, hint);
  }
}

TEST(KeepPrefix, TheHintIsRoundedDownToAPossibleHit) {
  TestEngine engine(FullAnd(Window(16)));
  CacheRequest request = Request("0", Tokens(100));
  EXPECT_EQ(BoundaryOf(engine, request, 79), 64);
  EXPECT_EQ(BoundaryOf(engine, request, 15), 0);
  EXPECT_EQ(BoundaryOf(engine, request, -5), 0);
  EXPECT_EQ(BoundaryOf(engine, request, 5000), 96) << "the whole blocks of the prompt";
  TestEngine mixed(Config({Full(32), Window(8, 8)}, 100));
  CacheRequest other = Request("0", Tokens(100));
  EXPECT_EQ(BoundaryOf(mixed, other, 79), 64) << "hits end at multiples of 32 tokens";
}

TEST(KeepPrefix, TheBoundaryOfTheOwnLookupWins) {
  TestEngine engine(FullAnd(Window(16)));
  CacheRequest first = Sharing("0", 64, 1000);
  engine.Start(first);
  CacheRequest second = Sharing("1", 64, 2000);
  for (const int64_t hint : {0, 32, 96}) EXPECT_EQ(BoundaryOf(engine, second, hint), 64) << hint;
}

TEST(KeepPrefix, AHitBeyondTheHintNeedsNoBoundary) {
  TestEngine engine(Config({Full()}, 100));
  CacheRequest first = Sharing("0", 64, 1000);
  engine.Start(first);
  CacheRequest second = Sharing("1", 64, 2000);
  EXPECT_EQ(engine.Lookup(second).tokens, 64);
  EXPECT_EQ(BoundaryOf(engine, second, 48), 0);
  EXPECT_EQ(BoundaryOf(engine, second, 64), 0);
  EXPECT_EQ(BoundaryOf(engine, second, 80), 80);
}

TEST(KeepPrefix, WithoutALookupThereIsNoBoundary) {
  TestEngine engine(FullAnd(Window(16)));
  CacheRequest request = Request("0", Tokens(100));
  request.skip_prefix_lookup = true;
  EXPECT_EQ(BoundaryOf(engine, request, 64), 0);
}

// The free blocks that are cached, in the order of their eviction.
Ids EvictionOrder(TestEngine& engine) {
  Ids blocks;
  GpuBlockPool& pool = engine.cache().gpu_blocks();
  for (auto block = pool.NextFree({}); block; block = pool.NextFree(block)) {
    if (pool.ContentOf(*block)) blocks.push_back(block->value);
  }
  return blocks;
}

// The pool has the blocks 1 to 19 of 16 tokens.
struct WillNotReturn : ::testing::Test {
  // Runs a request to its end. Its prompt begins with the token `first`.
  CacheRequest Run(const char* id, TokenId first, int64_t tokens,
                   std::optional<int64_t> will_not_return_after = std::nullopt) {
    CacheRequest request = Request(id, Tokens(tokens, first));
    request.will_not_return_after = will_not_return_after;
    engine.Start(request);
    engine.cache().Free(request, /*ended=*/true);
    return request;
  }
  Ids Evicted() { return EvictionOrder(engine); }
  int64_t Hit(CacheRequest request) {
    request.id += " again";
    return engine.Lookup(request).tokens;
  }

  TestEngine engine{Config({Full()}, 20)};
};

TEST_F(WillNotReturn, ItsOwnBlocksAreEvictedFirst) {
  Run("old", 0, 64);            // blocks 1 to 4
  Run("hinted", 1000, 64, 32);  // blocks 5 to 8
  EXPECT_EQ(Evicted(), (Ids{8, 7, 4, 3, 2, 1, 6, 5}));
  Run("early", 2000, 32, 0);  // blocks 9 and 10
  EXPECT_EQ(Evicted(), (Ids{8, 7, 10, 9, 4, 3, 2, 1, 6, 5})) << "in the order of their ends";
}

TEST_F(WillNotReturn, UncachedBlocksAreAllocatedFirst) {
  const CacheRequest hinted = Run("hinted", 1000, 64, 0);
  Run("fills the pool", 2000, 16 * 15);
  EXPECT_EQ(Hit(hinted), 48);
  Run("evicts", 3000, 16);
  EXPECT_EQ(Evicted().front(), 3u) << "block 4 was taken";
}

TEST_F(WillNotReturn, LookupsDoNotChange) {
  const CacheRequest hinted = Run("hinted", 1000, 64, 0);
  EXPECT_EQ(Hit(hinted), 48);
}

TEST_F(WillNotReturn, ABlockThatAnotherRequestAdoptedIsKept) {
  Run("old", 0, 64);
  CacheRequest hinted = Request("hinted", Tokens(64, 1000));  // blocks 5 to 8
  hinted.will_not_return_after = 0;
  engine.Start(hinted);
  CacheRequest same = Request("same", Concat(Tokens(32, 1000), Tokens(16)));  // block 9
  engine.Start(same);
  engine.cache().Free(same, /*ended=*/true);
  engine.cache().Free(hinted, /*ended=*/true);
  EXPECT_EQ(Evicted(), (Ids{8, 7, 4, 3, 2, 1, 9, 6, 5}));
}

TEST_F(WillNotReturn, ABlockWithNewContentIsNoLongerAdopted) {
  Run("first", 0, 64);
  Run("adopts three blocks", 0, 64);
  CacheRequest hinted = Request("hinted", Tokens(16 * 19, 1000));  // takes all blocks
  hinted.will_not_return_after = 0;
  engine.Start(hinted);
  Ids expected = engine.Table(hinted, 0);
  std::reverse(expected.begin(), expected.end());
  engine.cache().Free(hinted, /*ended=*/true);
  Run("usual", 5000, 16);
  std::rotate(expected.begin(), expected.begin() + 1, expected.end());
  EXPECT_EQ(Evicted(), expected);
}

TEST_F(WillNotReturn, TheHintHasNoEffectIfTheRequestIsPreempted) {
  Run("old", 0, 64);
  CacheRequest hinted = Request("hinted", Tokens(64, 1000));
  hinted.will_not_return_after = 0;
  engine.Start(hinted);
  engine.Free(hinted);
  EXPECT_EQ(Evicted(), (Ids{4, 3, 2, 1, 8, 7, 6, 5}));
}

TEST_F(WillNotReturn, ASharedPrefixOfTheOwnLookupIsKept) {
  CacheConfig config = Config({Full(), Window(16)}, 60);
  config.retention_interval = 0;
  TestEngine hybrid(config);
  CacheRequest first = Request("0", Concat(Tokens(64), Tokens(64, 1000)));
  hybrid.Start(first);
  hybrid.Free(first);
  CacheRequest second = Request("1", Concat(Tokens(64), Tokens(64, 2000)));
  second.will_not_return_after = 16;
  hybrid.Start(second);
  ASSERT_EQ(second.shared_prefix_boundary, 64);
  hybrid.cache().Free(second, /*ended=*/true);
  // First in the order are five cached blocks of the second request's tail, then four of the first
  // request's tail.
  const Ids order = EvictionOrder(hybrid);
  for (size_t i = 0; i < 9; ++i) hybrid.Evict(order[i]);
  CacheRequest third = Request("2", Concat(Tokens(64), Tokens(64, 3000)));
  EXPECT_EQ(hybrid.Lookup(third).tokens, 64);
}

}  // namespace
}  // namespace kvcast::engine
