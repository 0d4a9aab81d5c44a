// Prefix caching with one full-attention group: which blocks are reused, taken and evicted.
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/engine_testing.h"

namespace kvcast::engine {
namespace {

constexpr GroupIdx kGroup0{0};

// 48 tokens that requests share, and tails of their own.
CacheRequest Shared(std::string id, int64_t own_tokens, TokenId first) {
  return Request(std::move(id), Concat(Tokens(48), Tokens(own_tokens, first)));
}

// 11 blocks, prompts of 48 + 7, 48 + 5 and 48 + 6 tokens, then 160 fresh ones.
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
  engine.Free(req0);
  engine.Free(req1);

  CacheRequest req2 = Shared("2", 6, 3000);
  EXPECT_EQ(engine.Start(req2), (IdLists{{5}}));
  EXPECT_EQ(engine.free_blocks(), 6);
  engine.Free(req2);

  CacheRequest req3 = Request("3", Tokens(160, 9000));
  EXPECT_EQ(engine.Start(req3), (IdLists{{5, 4, 6, 7, 8, 9, 10, 3, 2, 1}}));
}

// 11 blocks, 87 and 48 tokens: after both are freed, 35 tokens of the first prompt hit two blocks.
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

// 2 blocks: one cached block is freed and taken by a 15-token request.
TEST(PrefixCaching, ATakenBlockIsNoLongerCached) {
  TestEngine engine(Config({Full()}, 2));
  CacheRequest req0 = Request("0", Tokens(16));
  engine.Start(req0);
  engine.Free(req0);
  CacheRequest req1 = Request("1", Tokens(15, 100));
  EXPECT_EQ(engine.Start(req1), (IdLists{{1}}));
  EXPECT_TRUE(engine.cache().CachedKeys(kGroup0).empty());
}

// 3 blocks: two cached ones are free, a request hits the first and needs one more.
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

// 5 free blocks; 9 blocks are wanted, 6 are hits (3 of them free), so 3 + 3 free ones are needed.
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
  engine.Free(req2);
  EXPECT_TRUE(engine.Allocate(req3, {.new_tokens = 48, .hit = &hit}));
}

TEST(PrefixCaching, ResetForgetsAllBlocksButNotWhileOneIsInUse) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Request("0", Tokens(55));
  engine.Start(req0);
  EXPECT_FALSE(engine.cache().ResetPrefixCache());
  engine.Free(req0);
  EXPECT_TRUE(engine.cache().ResetPrefixCache());
  EXPECT_TRUE(engine.cache().CachedKeys(kGroup0).empty());
}

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

// Images at 11 (10 positions), 30 (18) and 48 (7).
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

TEST(PrefixCaching, EvictingAnUnknownBlockIsAnError) {
  TestEngine engine(Config({Full()}, 11));
  const auto blocks = ToBlocks({3, 11});
  EXPECT_EQ(engine.cache().EvictBlocks(blocks).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::engine
