// Prefix caching with one full-attention group: which blocks are reused, taken and evicted.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

constexpr GroupIdx kGroup0{0};

// 48 tokens that requests share, and tails of their own.
CacheRequest Shared(std::string id, int64_t own_tokens, TokenId first) {
  return Request(std::move(id), Concat(Tokens(48), Tokens(own_tokens, first)));
}

// Full attention, N=11, prompt of 48 + 7 tokens: allocating 55 gives blocks [1,2,3,4], 3 are cached
// in group 0. The same 48 + 5: hit [1,2,3], 48 tokens, new [5], 2 references each, 5 free. After
// both are freed, 48 + 6 gets [5], 6 free; then 160 fresh tokens get [5,4,6,7,8,9,10,3,2,1].
TEST(PrefixCaching, SecondRequestReusesFullBlocksAndFreedOnesComeBackInOrder) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Shared("0", 7, 1000);
  EXPECT_EQ(engine.Start(req0), (IdLists{{1, 2, 3, 4}}));
  EXPECT_EQ(CachedPositions(engine.cache(), req0, kGroup0), (Ids{0, 1, 2}));

  CacheRequest req1 = Shared("1", 5, 2000);
  const PrefixHit hit = engine.Lookup(req1);
  EXPECT_EQ(hit.tokens, 48);
  EXPECT_EQ(ToIds(hit.blocks), (IdLists{{1, 2, 3}}));
  EXPECT_EQ(engine.Start(req1), (IdLists{{5}}));
  EXPECT_EQ(engine.free_blocks(), 5);
  EXPECT_EQ(engine.cache().CommonPrefixBlocks(req1, kGroup0), 3) << "two requests refer to each";
  engine.Free(req0);
  engine.Free(req1);

  CacheRequest req2 = Shared("2", 6, 3000);
  EXPECT_EQ(engine.Start(req2), (IdLists{{5}}));
  EXPECT_EQ(engine.free_blocks(), 6);
  engine.Free(req2);

  CacheRequest req3 = Request("3", Tokens(160, 9000));
  EXPECT_EQ(engine.Start(req3), (IdLists{{5, 4, 6, 7, 8, 9, 10, 3, 2, 1}}));
}

// The ids that a pool of 11 blocks would give away next, from the head of its queue on.
Ids FreeOrder(TestEngine& engine) {
  CacheRequest all = Request("all", Tokens(16 * engine.free_blocks(), 90000));
  return engine.StartWithoutLookup(all).at(0);
}

// N=11, requests of 48 + 7 and 48 + 5 tokens, both freed: the queue is [5,4,6,7,8,9,10,3,2,1].
TEST(PrefixCaching, QueueAfterTwoRequestsThatShareBlocks) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Shared("0", 7, 1000);
  CacheRequest req1 = Shared("1", 5, 2000);
  engine.Start(req0);
  engine.Start(req1);
  engine.Free(req0);
  engine.Free(req1);
  EXPECT_EQ(FreeOrder(engine), (Ids{5, 4, 6, 7, 8, 9, 10, 3, 2, 1}));
}

// N=11, 87 and 48 tokens: freeing the first leaves [6,10,5,4,3,2,1] in the queue, freeing the
// second appends [9,8,7].
TEST(PrefixCaching, QueueAfterTwoRequestsOfTheirOwn) {
  for (const bool both : {false, true}) {
    TestEngine engine(Config({Full()}, 11));
    CacheRequest req0 = Request("0", Tokens(87));
    CacheRequest req1 = Request("1", Tokens(48, 500));
    engine.Start(req0);
    engine.Start(req1);
    engine.Free(req0);
    if (both) engine.Free(req1);
    EXPECT_EQ(FreeOrder(engine),
              both ? (Ids{6, 10, 5, 4, 3, 2, 1, 9, 8, 7}) : (Ids{6, 10, 5, 4, 3, 2, 1}));
  }
}

// N=11, 87 and 48 tokens, both freed: 35 tokens of the first prompt hit [1,2], new [6], 7 free.
TEST(PrefixCaching, FreedRequestsStayReusable) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Request("0", Tokens(87));
  CacheRequest req1 = Request("1", Tokens(48, 500));
  engine.Start(req0);
  engine.Start(req1);
  engine.Free(req0);
  engine.Free(req1);
  EXPECT_EQ(engine.free_blocks(), 10);
  CacheRequest req2 = Request("2", Tokens(35));
  EXPECT_EQ(ToIds(engine.Lookup(req2).blocks), (IdLists{{1, 2}}));
  EXPECT_EQ(engine.Start(req2), (IdLists{{6}}));
  EXPECT_EQ(engine.free_blocks(), 7);
}

TEST(PrefixCaching, LastTokenOfAPromptIsAlwaysComputed) {
  TestEngine engine(Config({Full()}, 20));
  CacheRequest req0 = Request("0", Tokens(48));
  engine.Start(req0);
  CacheRequest same = Request("1", Tokens(48));
  EXPECT_EQ(engine.Lookup(same).tokens, 32);
  CacheRequest longer = Request("2", Tokens(49));
  EXPECT_EQ(engine.Lookup(longer).tokens, 48);
}

// N=2: one cached block is freed; a 15-token request takes it, and it has no hash any more.
TEST(PrefixCaching, ATakenBlockIsNoLongerCached) {
  TestEngine engine(Config({Full()}, 2));
  CacheRequest req0 = Request("0", Tokens(16));
  engine.Start(req0);
  engine.Free(req0);
  CacheRequest req1 = Request("1", Tokens(15, 100));
  EXPECT_EQ(engine.Start(req1), (IdLists{{1}}));
  EXPECT_TRUE(engine.cache().CachedKeys(kGroup0).empty());
}

// N=3: two cached blocks are free; a 32-token request hits block 1, and block 2 is evicted for it.
TEST(PrefixCaching, AHitIsNotEvictedByItsOwnRequest) {
  TestEngine engine(Config({Full()}, 3));
  CacheRequest req0 = Request("0", Tokens(16));
  CacheRequest req1 = Request("1", Tokens(16, 100));
  engine.Start(req0);
  engine.Start(req1);
  engine.Free(req0);
  engine.Free(req1);
  CacheRequest req2 = Request("2", Tokens(32));
  EXPECT_EQ(ToIds(engine.Lookup(req2).blocks), (IdLists{{1}}));
  EXPECT_EQ(engine.Start(req2), (IdLists{{2}}));
  EXPECT_EQ(engine.Table(req2, 0), (Ids{1, 2}));
}

// 5 free blocks; a request of 9 blocks has 6 hits (3 of them free) and needs 3 new ones: refused,
// the references of the hits are untouched.
TEST(PrefixCaching, FreeHitsCountAsDemandAndARefusalTouchesNothing) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Request("0", Tokens(48));
  engine.Start(req0);
  CacheRequest req1 = Request("1", Tokens(96));
  engine.Start(req1);
  engine.Free(req1);
  CacheRequest req2 = Request("2", Tokens(31, 700));
  engine.Start(req2);
  ASSERT_EQ(engine.free_blocks(), 5);

  CacheRequest req3 = Request("3", Concat(Tokens(96), Tokens(48, 900)));
  const PrefixHit hit = engine.Lookup(req3);
  EXPECT_EQ(hit.tokens, 96);
  EXPECT_FALSE(engine.Allocate(req3, {.new_tokens = 48, .hit = &hit}));
  EXPECT_EQ(engine.free_blocks(), 5);
  EXPECT_TRUE(engine.Table(req3, 0).empty());
  engine.Free(req0);
  EXPECT_EQ(engine.free_blocks(), 8) << "nobody else refers to the first three hits";
  EXPECT_FALSE(engine.Allocate(req3, {.new_tokens = 48, .hit = &hit}));
  engine.Free(req2);
  EXPECT_TRUE(engine.Allocate(req3, {.new_tokens = 48, .hit = &hit}));
}

// Reset: false while blocks are in use; true after they are freed, and no hash is left.
TEST(PrefixCaching, ResetForgetsAllBlocksButNotWhileOneIsInUse) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Request("0", Tokens(55));
  engine.Start(req0);
  EXPECT_FALSE(engine.cache().ResetPrefixCache());
  engine.Free(req0);
  EXPECT_TRUE(engine.cache().ResetPrefixCache());
  EXPECT_TRUE(engine.cache().CachedKeys(kGroup0).empty());
}

// Salt "salt1": block 0 has the extra key ("salt1",), the others none; another salt is no hit.
TEST(PrefixCaching, AnotherSaltIsAnotherPrefix) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Request("0", Tokens(40));
  req0.hash_inputs.cache_salt = "salt1";
  engine.Start(req0);
  const auto events = engine.cache().TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  const auto& extra_keys = *std::get<BlockStored>(events[0]).extra_keys;
  EXPECT_EQ(extra_keys[0], ExtraKeys{ExtraKey::Text("salt1")});
  EXPECT_EQ(extra_keys[1], std::nullopt);

  CacheRequest same = Request("1", Tokens(40));
  same.hash_inputs.cache_salt = "salt1";
  EXPECT_EQ(engine.Lookup(same).tokens, 32);
  CacheRequest other = Request("2", Tokens(40));
  other.hash_inputs.cache_salt = "salt2";
  EXPECT_EQ(engine.Lookup(other).tokens, 0);
  CacheRequest none = Request("3", Tokens(40));
  EXPECT_EQ(engine.Lookup(none).tokens, 0);
}

// Images at 11 (10 positions), 30 (18) and 48 (7): keys (aaa,11); (aaa,-5),(bbb,14); (bbb,-2);
// (ccc,0).
TEST(PrefixCaching, ImagesEnterTheKeysOfTheBlocksTheyOverlap) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest request = Request("0", Tokens(64));
  request.hash_inputs.mm_items = {{"aaa", 11, 10}, {"bbb", 30, 18}, {"ccc", 48, 7}};
  engine.Start(request);
  const auto events = engine.cache().TakeEvents();
  const auto& keys = *std::get<BlockStored>(events.at(0)).extra_keys;
  EXPECT_EQ(keys[0], ExtraKeys{ExtraKey::Item("aaa", 11)});
  EXPECT_EQ(keys[1], (ExtraKeys{ExtraKey::Item("aaa", -5), ExtraKey::Item("bbb", 14)}));
  EXPECT_EQ(keys[2], ExtraKeys{ExtraKey::Item("bbb", -2)});
  EXPECT_EQ(keys[3], ExtraKeys{ExtraKey::Item("ccc", 0)});
}

TEST(PrefixCaching, ARequestMaySkipTheLookup) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Request("0", Tokens(40));
  engine.Start(req0);
  CacheRequest req1 = Request("1", Tokens(40));
  req1.skip_prefix_lookup = true;
  EXPECT_EQ(engine.Lookup(req1).tokens, 0);
}

TEST(PrefixCaching, WithoutCachingNothingIsCachedOrFound) {
  CacheConfig config = Config({Full()}, 11);
  config.enable_caching = false;
  TestEngine engine(config);
  CacheRequest req0 = Request("0", Tokens(40));
  EXPECT_EQ(engine.Start(req0), (IdLists{{1, 2, 3}}));
  CacheRequest req1 = Request("1", Tokens(40));
  EXPECT_EQ(engine.Lookup(req1).tokens, 0);
  EXPECT_TRUE(engine.cache().TakeEvents().empty());
  engine.Free(req0);
  EXPECT_EQ(engine.Start(req1), (IdLists{{3, 2, 1}}));
}

TEST(PrefixCaching, DecodeCachesABlockWhenItIsFull) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest request = Request("0", Tokens(30));
  engine.Start(request);
  EXPECT_EQ(CachedPositions(engine.cache(), request, kGroup0), (Ids{0}));
  engine.Decode(request, 500);
  engine.Decode(request, 501);
  EXPECT_EQ(CachedPositions(engine.cache(), request, kGroup0), (Ids{0, 1}));
  EXPECT_EQ(engine.Table(request, 0).size(), 2u);
  engine.Decode(request, 502);
  EXPECT_EQ(engine.Table(request, 0).size(), 3u);
}

TEST(PrefixCaching, LookaheadGetsSlotsButDraftsAreNotCached) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest request = Request("0", Tokens(30));
  ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 30, .lookahead_tokens = 5}));
  EXPECT_EQ(engine.Table(request, 0).size(), 3u);
  EXPECT_EQ(CachedPositions(engine.cache(), request, kGroup0), (Ids{0}));
}

// Common prefix: leading blocks with as many references as there are requests; full attention only.
TEST(PrefixCaching, CommonPrefixIsWhatAllRunningRequestsShare) {
  TestEngine engine(Config({Full(), Window(32)}, 40));
  CacheRequest req0 = Shared("0", 7, 1000);
  CacheRequest req1 = Shared("1", 7, 2000);
  engine.Start(req0);
  EXPECT_EQ(engine.cache().CommonPrefixBlocks(req0, kGroup0), 4);
  engine.Start(req1);
  EXPECT_EQ(engine.cache().CommonPrefixBlocks(req0, kGroup0), 3);
  EXPECT_EQ(engine.cache().CommonPrefixBlocks(req0, GroupIdx(1)), 0);
  CacheRequest req2 = Request("2", Tokens(20, 5000));
  engine.Start(req2);
  EXPECT_EQ(engine.cache().CommonPrefixBlocks(req0, kGroup0), 0);
}

// Zeroing on, 4 tokens: the new block is reported once, then none; blocks that are reused are not.
TEST(PrefixCaching, NewBlocksAreReportedForZeroingOnce) {
  CacheConfig config = Config({Full(), Window(32), Mamba(MambaMode::kAlign)}, 40);
  config.zero_new_blocks = true;
  TestEngine engine(config);
  CacheRequest req0 = Request("0", Tokens(36));
  ASSERT_TRUE(engine.Allocate(req0, {.new_tokens = 4}));
  EXPECT_EQ(engine.last_new(), (IdLists{{1}, {2}, {3}}));
  EXPECT_EQ(ToIds(engine.cache().TakeBlocksToZero()), (Ids{1, 2})) << "a state is written whole";
  EXPECT_TRUE(engine.cache().TakeBlocksToZero().empty());
  ASSERT_TRUE(engine.Allocate(req0, {.computed_tokens = 4, .new_tokens = 28}));
  EXPECT_EQ(ToIds(engine.cache().TakeBlocksToZero()), (Ids{4, 5}));
  engine.cache().BeginStep();
  CacheRequest req1 = Request("1", Tokens(40));
  const IdLists added = engine.Start(req1);
  EXPECT_EQ(engine.Table(req1, 0), (Ids{1, 4, added[0][0]}));
  EXPECT_EQ(ToIds(engine.cache().TakeBlocksToZero()), (Ids{added[0][0], added[1][0]}));
}

TEST(PrefixCaching, BlocksForLoadedTokensAreZeroedToo) {
  CacheConfig config = Config({Full()}, 40);
  config.zero_new_blocks = true;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(64));
  ASSERT_TRUE(engine.Allocate(request, {.external_tokens = 48, .delay_caching = true}));
  EXPECT_EQ(ToIds(engine.cache().TakeBlocksToZero()), (Ids{1, 2, 3}));
}

TEST(PrefixCaching, WithoutTheOptionNothingIsReportedForZeroing) {
  TestEngine engine(Config({Full()}, 40));
  CacheRequest request = Request("0", Tokens(64));
  engine.Start(request);
  EXPECT_TRUE(engine.cache().TakeBlocksToZero().empty());
}

TEST(PrefixCaching, EvictingAnUnknownBlockIsAnError) {
  TestEngine engine(Config({Full()}, 11));
  const auto blocks = ToBlocks({3, 11});
  EXPECT_EQ(engine.cache().EvictBlocks(blocks).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::engine
