// With one full-attention group, prefix caching reuses, takes and evicts the right blocks.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

// 48 tokens that all requests share, followed by tokens of their own.
CacheRequest Shared(std::string id, int64_t own_tokens, TokenId first) {
  return Request(std::move(id), Concat(Tokens(48), Tokens(own_tokens, first)));
}

// Full attention, 11 blocks, prompt of 48 + 7 tokens: the allocation of 55 tokens gives blocks
// [1,2,3,4], and 3 of these blocks are cached in group 0. A prompt of the same 48 + 5 tokens hits
// [1,2,3], 48 tokens, and gets the new block [5]. Hit blocks have 2 references each, and 5 blocks
// are free. After both requests are freed, a prompt of 48 + 6 tokens gets [5], and 6 blocks are
// free. Then 160 new tokens get [5,4,6,7,8,9,10,3,2,1].
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
  EXPECT_EQ(engine.cache().CommonPrefixBlocks(req1, kGroup0), 3)
      << "two requests refer to each block";
  engine.Free(req0);
  engine.Free(req1);

  CacheRequest req2 = Shared("2", 6, 3000);
  EXPECT_EQ(engine.Start(req2), (IdLists{{5}}));
  EXPECT_EQ(engine.free_blocks(), 6);
  engine.Free(req2);

  CacheRequest req3 = Request("3", Tokens(160, 9000));
  EXPECT_EQ(engine.Start(req3), (IdLists{{5, 4, 6, 7, 8, 9, 10, 3, 2, 1}}));
}

// Allocates all free blocks, and returns their ids in the order of the free queue.
Ids FreeOrder(TestEngine& engine) {
  CacheRequest all = Request("all", Tokens(16 * engine.free_blocks(), 90000));
  return engine.StartWithoutLookup(all).at(0);
}

// 11 blocks, requests of 48 + 7 and 48 + 5 tokens, both freed: the queue is [5,4,6,7,8,9,10,3,2,1].
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

// 11 blocks, requests of 87 and 48 tokens: after the first request is freed the queue is
// [6,10,5,4,3,2,1]. Freeing the second request appends [9,8,7].
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

// 11 blocks, requests of 87 and 48 tokens, both freed: 35 tokens of the first prompt hit [1,2] and
// get the new block [6], with 7 free.
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

// 2 blocks: one cached block is freed. A request of 15 tokens takes this block, and the block loses
// its hash.
TEST(PrefixCaching, ATakenBlockIsNoLongerCached) {
  TestEngine engine(Config({Full()}, 2));
  CacheRequest req0 = Request("0", Tokens(16));
  engine.Start(req0);
  engine.Free(req0);
  CacheRequest req1 = Request("1", Tokens(15, 100));
  EXPECT_EQ(engine.Start(req1), (IdLists{{1}}));
  EXPECT_TRUE(engine.cache().CachedKeys(kGroup0).empty());
}

// 3 blocks: two cached blocks are free. A request of 32 tokens hits block 1 and evicts block 2.
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

// 5 blocks are free. A request of 9 blocks has 6 hits, 3 of which are free, and needs 3 new blocks.
// The request is refused, and the references of the hits are unchanged.
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
  EXPECT_EQ(engine.free_blocks(), 8) << "no other request refers to the first three hits";
  EXPECT_FALSE(engine.Allocate(req3, {.new_tokens = 48, .hit = &hit}));
  engine.Free(req2);
  EXPECT_TRUE(engine.Allocate(req3, {.new_tokens = 48, .hit = &hit}));
}

// Reset returns false while blocks are in use. After the blocks are freed, Reset returns true and
// drops all hashes.
TEST(PrefixCaching, ResetForgetsAllBlocksButNotWhileOneIsInUse) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest req0 = Request("0", Tokens(55));
  engine.Start(req0);
  EXPECT_FALSE(engine.cache().ResetPrefixCache());
  engine.Free(req0);
  EXPECT_TRUE(engine.cache().ResetPrefixCache());
  EXPECT_TRUE(engine.cache().CachedKeys(kGroup0).empty());
}

// With salt "salt1" block 0 has the extra key ("salt1",), and the other blocks have none. Another
// salt does not hit.
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

// Images at 11 (10 positions), 30 (18) and 48 (7) give the keys (aaa,11); (aaa,-5),(bbb,14);
// (bbb,-2); (ccc,0).
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

// The common prefix is the leading blocks that have one reference per running request. Only full
// attention has a common prefix.
TEST(PrefixCaching, CommonPrefixIsThePrefixOfAllRunningRequests) {
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

// Zeroing is on. Each new block of attention is reported once. Blocks of Mamba states and reused
// blocks are not reported.
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
