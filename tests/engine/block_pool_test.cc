// The block pool caches, finds and evicts blocks, and refuses wrong calls.
// SPDX-License-Identifier: Apache-2.0
#include "src/engine/block_pool.h"

#include "src/engine/group_lookup.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

TEST(BlockPool, NeverAllocatesTheNullBlock) {
  BlockPool pool(Pool(4, 16));
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(ToIds(Allocated(pool, 3)), (Ids{1, 2, 3}));
  EXPECT_EQ(pool.num_free(), 0);
  const std::vector<BlockId> null = {kNullBlock};
  pool.Touch(null);
  pool.Free(null);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

// Block size 4, 14 tokens. The pool caches 2 full blocks and then the third: the map has 2 keys,
// then 3.
TEST(BlockPool, CachesOnlyTheBlocksGivenAndAddsLaterOnes) {
  BlockPool pool(Pool(10, 4));
  const CacheRequest request = HashedRequest(14, 4);
  const auto table = Allocated(pool, 4);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 0, 2});
  EXPECT_EQ(pool.cached().num_keys(), 2u);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 2, 3});
  EXPECT_EQ(pool.cached().num_keys(), 3u);
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

// Group 0 caches 2 blocks and group 1 caches 3 blocks of one request. The third block is a miss in
// group 0, a hit in group 1, and a miss in a lookup of both groups.
TEST(BlockPool, LooksUpEachGroupOnItsOwn) {
  BlockPool pool(Pool(10, 4));
  const CacheRequest request = HashedRequest(12, 4);
  const auto table0 = Allocated(pool, 3);
  const auto table1 = Allocated(pool, 3);
  pool.CacheFullBlocks({request, kGroup0, 4, table0, 0, 2});
  pool.CacheFullBlocks({request, kGroup1, 4, table1, 0, 3});
  EXPECT_EQ(pool.FindCached(request.chain[2], kGroup0), std::nullopt);
  EXPECT_EQ(pool.FindCached(request.chain[2], kGroup1), table1[2]);
  EXPECT_EQ(pool.FindCached(request.chain[1], kGroup0), table0[1]);
  const auto hit_blocks = [&](std::vector<size_t> groups) {
    GroupLookup lookup({Full(4), std::move(groups)}, pool, 4);
    lookup.Begin(request.chain);
    return lookup.LongestHit(12, false) / 4;
  };
  EXPECT_EQ(hit_blocks({0}), 2);
  EXPECT_EQ(hit_blocks({1}), 3);
  EXPECT_EQ(hit_blocks({0, 1}), 2);
  EXPECT_EQ(hit_blocks({1, 0}), 2);
}

TEST(BlockPool, TakesUncachedBlocksBeforeCachedOnesAndTheTailOfARequestFirst) {
  BlockPool pool(Pool(6, 4));
  const CacheRequest request = HashedRequest(12, 4);
  const auto table = Allocated(pool, 4);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 0, 3});
  pool.Free(ToBlocks({4, 3, 2, 1}));
  EXPECT_EQ(ToIds(pool.FreeList()), (Ids{4, 5, 3, 2, 1}));
}

TEST(BlockPool, KeepsTheOrderOfFreeingUnderOlderRules) {
  PoolOptions options = Pool(6, 4);
  options.reuse_uncached_first = false;
  BlockPool pool(options);
  const CacheRequest request = HashedRequest(12, 4);
  const auto table = Allocated(pool, 4);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 0, 3});
  pool.Free(ToBlocks({4, 3, 2, 1}));
  EXPECT_EQ(ToIds(pool.FreeList()), (Ids{5, 4, 3, 2, 1}));
}

TEST(BlockPool, TakesCachedBlocksInTheOrderOfTheirLastUse) {
  BlockPool pool(Pool(4, 4));
  const CacheRequest request = HashedRequest(12, 4);
  const auto table = Allocated(pool, 3);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 0, 3});
  pool.Free(ToBlocks({3, 2, 1}));
  const auto used = ToBlocks({3});
  pool.Touch(used);
  pool.Free(used);
  EXPECT_EQ(ToIds(Allocated(pool, 3)), (Ids{2, 1, 3}));
  EXPECT_EQ(pool.cached().num_keys(), 0u) << "a block that is taken leaves the cache";
}

TEST(BlockPool, ABlockIsFreeWhenItsLastReferenceIsReleased) {
  BlockPool pool(Pool(3, 4));
  const auto table = Allocated(pool, 1);
  pool.Touch(table);
  EXPECT_EQ(pool.ref_count(table[0]), 2u);
  pool.Free(table);
  EXPECT_EQ(pool.num_free(), 1);
  pool.Free(table);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPool, ResetIsRefusedWhileABlockIsInUse) {
  BlockPool pool(Pool(4, 4));
  const CacheRequest request = HashedRequest(8, 4);
  const auto table = Allocated(pool, 2);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 0, 2});
  EXPECT_FALSE(pool.Reset());
  EXPECT_EQ(pool.cached().num_keys(), 2u);
  pool.Free(table);
  EXPECT_TRUE(pool.Reset());
  EXPECT_EQ(pool.cached().num_keys(), 0u);
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

TEST(BlockPool, BlocksThatAreFreedToTheHeadAreTakenNext) {
  BlockPool pool(Pool(6, 4));
  const CacheRequest request = HashedRequest(8, 4);
  const auto table = Allocated(pool, 2);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 0, 2});
  pool.Free(table, FreeTo::kHead);
  EXPECT_EQ(ToIds(pool.FreeList()), (Ids{1, 2, 3, 4, 5}));
  pool.Touch(table);
  pool.Free(table);
  EXPECT_EQ(ToIds(pool.FreeList()), (Ids{3, 4, 5, 1, 2}));
}

TEST(BlockPool, ForgetAllLeavesBlocksInUseAllocatedAndMakesAnEvent) {
  BlockPool pool(Pool(4, 4));
  const CacheRequest request = HashedRequest(4, 4);
  const auto table = Allocated(pool, 2);
  pool.CacheAs({request.chain[0], kGroup0}, table[0], 4);
  EXPECT_EQ(pool.FindCached(request.chain[0], kGroup0), table[0]);
  EXPECT_TRUE(TakeEvents(pool).empty()) << "CacheAs makes no event";
  pool.ForgetAll();
  EXPECT_EQ(pool.FindCached(request.chain[0], kGroup0), std::nullopt);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(TakeEvents(pool).size(), 1u);
}

TEST(BlockPool, EvictedBlocksStayAllocated) {
  BlockPool pool(Pool(4, 4));
  const CacheRequest request = HashedRequest(8, 4);
  const auto table = Allocated(pool, 2);
  pool.CacheFullBlocks({request, kGroup0, 4, table, 0, 2});
  pool.Evict({&table[0], 1});
  EXPECT_EQ(pool.FindCached(request.chain[0], kGroup0), std::nullopt);
  EXPECT_EQ(pool.ref_count(table[0]), 1u);
}

TEST(BlockPool, PartialEntriesMustEndWhereAHashEnds) {
  BlockPool pool(Pool(4, 4));
  const CacheRequest request = HashedRequest(14, 4);
  const auto table = Allocated(pool, 3);
  const auto cache = [&](BlockId block, int64_t tokens) {
    return pool.CachePartialBlock({request, kGroup0, block, tokens}).has_value();
  };
  EXPECT_FALSE(cache(kNullBlock, 4));
  EXPECT_FALSE(cache(table[0], 0));
  EXPECT_FALSE(cache(table[0], 6)) << "not at the end of a hashed block";
  EXPECT_FALSE(cache(table[1], 16)) << "beyond the hashed tokens";
  EXPECT_TRUE(cache(table[0], 4));
  EXPECT_TRUE(cache(table[1], 12));
  EXPECT_TRUE(cache(table[2], 8)) << "the end of a full block is allowed";
}

// A lookup may find a full block by a prefix that ends inside the block.
TEST(BlockPool, AShorterPrefixInAFullBlockIsAnAlias) {
  BlockPool pool(Pool(4, 4));
  const CacheRequest request = HashedRequest(8, 4);
  const auto table = Allocated(pool, 1);
  pool.CacheFullBlocks({request, kGroup0, 8, table, 0, 1});
  ASSERT_TRUE(pool.CachePartialBlock({request, kGroup0, table[0], 4}));
  EXPECT_EQ(pool.cached().num_entries(), 2u);
  EXPECT_EQ(pool.FindCached(request.chain[0], kGroup0), table[0]);
  EXPECT_EQ(pool.FindCached(request.chain[1], kGroup0), table[0]);
  pool.Evict(table);
  EXPECT_EQ(pool.cached().num_entries(), 0u);
}

}  // namespace
}  // namespace kvcast::engine
