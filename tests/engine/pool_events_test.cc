// The events of the pool have the right value in every field.
// SPDX-License-Identifier: Apache-2.0
#include "src/engine/block_pool.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

// Returns the only event since the previous TakeEvents as a T.
template <typename T>
T OnlyEvent(BlockPool& pool) {
  const std::vector<Event> events = TakeEvents(pool);
  EXPECT_EQ(events.size(), 1u);
  if (events.size() != 1 || !std::holds_alternative<T>(events[0])) {
    ADD_FAILURE() << "expected exactly one event, of this type";
    return {};
  }
  return std::get<T>(events[0]);
}

TEST(PoolEvents, StoredCarriesHashesTokensAndExtraKeysOfTheSpan) {
  BlockPool pool(Pool(10, 4));
  CacheRequest request = HashedRequest(8, 4);
  request.session_id = "s1";
  const auto table = Allocated(pool, 2);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 2});
  BlockStored expected;
  expected.block_hashes = {EventHashOf(request, 0), EventHashOf(request, 1)};
  expected.token_ids = Tokens(8);
  expected.block_size = 4;
  expected.medium = "GPU";
  expected.extra_keys.emplace(2);
  expected.group_idx = 2;
  expected.session_id = "s1";
  EXPECT_EQ(OnlyEvent<BlockStored>(pool), expected);
  EXPECT_TRUE(TakeEvents(pool).empty());
}

// The parent block is null, 2 of 4 blocks are cached, block size 1: the parent is the hash of
// logical block 1, and the event has the hashes of blocks 2 and 3. The pool itself sets no kind.
TEST(PoolEvents, ParentIsTheLogicalBlockBeforeEvenIfThatIsNull) {
  BlockPool pool(Pool(10, 1));
  const CacheRequest request = HashedRequest(4, 1);
  const auto table = ToBlocks({0, 0, 1, 2});
  Allocated(pool, 2);
  pool.CacheFullBlocks({request, GroupIdx(0), 1, table, 2, 4});
  const auto stored = OnlyEvent<BlockStored>(pool);
  EXPECT_EQ(stored.parent_block_hash, EventHashOf(request, 1));
  EXPECT_EQ(stored.block_hashes, (std::vector{EventHashOf(request, 2), EventHashOf(request, 3)}));
  EXPECT_EQ(stored.kv_cache_spec_kind, std::nullopt) << "the pool does not set kinds";
}

TEST(PoolEvents, SkippedBlocksAreInTheTokensButNotInTheHashes) {
  BlockPool pool(Pool(10, 4));
  const CacheRequest request = HashedRequest(16, 4);
  auto table = Allocated(pool, 4);
  table[1] = kNullBlock;
  Bitmap keep(4);
  keep.Set(1);
  keep.Set(3);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 4, &keep});
  const auto stored = OnlyEvent<BlockStored>(pool);
  EXPECT_EQ(stored.block_hashes, std::vector{EventHashOf(request, 3)});
  EXPECT_EQ(stored.token_ids, Tokens(16));
  ASSERT_TRUE(stored.extra_keys);
  EXPECT_EQ(stored.extra_keys->size(), 1u);
}

TEST(PoolEvents, StoredIsSentEvenIfNoBlockWasCached) {
  BlockPool pool(Pool(10, 4));
  const CacheRequest request = HashedRequest(8, 4);
  const std::vector<BlockId> table(2, kNullBlock);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 2});
  const auto stored = OnlyEvent<BlockStored>(pool);
  EXPECT_TRUE(stored.block_hashes.empty());
  EXPECT_EQ(stored.token_ids, Tokens(8));
  EXPECT_EQ(stored.extra_keys, std::nullopt);
}

// With LoRA id 42 the event has lora_id 42, and the LoRA name is also an extra key.
TEST(PoolEvents, LoraIdAndNameAreThoseOfTheRequest) {
  BlockPool pool(Pool(10, 4));
  CacheRequest request = HashedRequest(4, 4);
  request.lora_id = 42;
  request.hash_inputs.lora_name = "adapter";
  const auto table = Allocated(pool, 1);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 1});
  const auto stored = OnlyEvent<BlockStored>(pool);
  EXPECT_EQ(stored.lora_id, 42);
  EXPECT_EQ(stored.lora_name, "adapter");
  EXPECT_EQ(stored.extra_keys->at(0), ExtraKeys{ExtraKey::Text("adapter")});
}

// Cache 2 blocks in group g, free 4 blocks, reallocate 4: 2 BlockRemoved events with group g.
TEST(PoolEvents, EachKeyOfATakenBlockIsRemovedOnItsOwn) {
  BlockPool pool(Pool(5, 4));
  const CacheRequest request = HashedRequest(8, 4);
  const auto table = Allocated(pool, 4);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 2});
  TakeEvents(pool);
  pool.Free(table);
  Allocated(pool, 4);
  const std::vector<Event> events = TakeEvents(pool);
  ASSERT_EQ(events.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    BlockRemoved expected;
    expected.block_hashes = {EventHashOf(request, i)};
    expected.medium = "GPU";
    expected.group_idx = 2;
    EXPECT_EQ(std::get<BlockRemoved>(events[i]), expected);
  }
}

TEST(PoolEvents, RemovedIsSentThoughAnotherBlockStillHoldsTheHash) {
  BlockPool pool(Pool(5, 4));
  const CacheRequest request = HashedRequest(4, 4);
  const auto first = Allocated(pool, 1);
  const auto second = Allocated(pool, 1);
  pool.CacheFullBlocks({request, kGroup2, 4, first, 0, 1});
  pool.CacheFullBlocks({request, kGroup2, 4, second, 0, 1});
  EXPECT_EQ(TakeEvents(pool).size(), 2u);
  pool.Evict(first);
  EXPECT_EQ(OnlyEvent<BlockRemoved>(pool).block_hashes, std::vector{EventHashOf(request, 0)});
  EXPECT_EQ(pool.FindCached(request.chain[0], kGroup2), second[0]);
}

// Partial entry: hash_block_size 4, block size 12, 8 tokens, group 2. The event has hash 1, parent
// hash 0, tokens 4..7, block_size 4. A duplicate sends no event. An eviction sends one
// BlockRemoved.
TEST(PoolEvents, APartialEntryIsStoredAsOneHashUnit) {
  BlockPool pool(Pool(5, 4));
  const CacheRequest request = HashedRequest(12, 4);
  const auto table = Allocated(pool, 1);
  ASSERT_TRUE(pool.CachePartialBlock({request, kGroup2, table[0], 8}));
  const auto stored = OnlyEvent<BlockStored>(pool);
  EXPECT_EQ(stored.block_hashes, std::vector{EventHashOf(request, 1)});
  EXPECT_EQ(stored.parent_block_hash, EventHashOf(request, 0));
  EXPECT_EQ(stored.token_ids, Tokens(4, 4));
  EXPECT_EQ(stored.block_size, 4);
  EXPECT_EQ(stored.group_idx, 2);
  ASSERT_TRUE(pool.CachePartialBlock({request, kGroup2, table[0], 8}));
  EXPECT_TRUE(TakeEvents(pool).empty()) << "registered twice";
  pool.Evict(table);
  EXPECT_EQ(OnlyEvent<BlockRemoved>(pool).block_hashes, std::vector{EventHashOf(request, 1)});
}

// Partial entries of 8 and then 10 tokens on the same block (hash_block_size 2, block size 6). The
// first event is a BlockRemoved with the hash of 8 tokens. The second event is a BlockStored with
// the hash of 10 tokens, the hash of 8 tokens as parent, and the tokens 8..9.
TEST(PoolEvents, ALongerPartialEntryReplacesTheShorterOne) {
  BlockPool pool(Pool(5, 2));
  const CacheRequest request = HashedRequest(12, 2);
  const auto table = Allocated(pool, 2);
  pool.CachePartialBlock({request, kGroup2, table[1], 8});
  TakeEvents(pool);
  pool.CachePartialBlock({request, kGroup2, table[1], 10});
  const std::vector<Event> events = TakeEvents(pool);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<BlockRemoved>(events[0]).block_hashes, std::vector{EventHashOf(request, 3)});
  const auto& stored = std::get<BlockStored>(events[1]);
  EXPECT_EQ(stored.block_hashes, std::vector{EventHashOf(request, 4)});
  EXPECT_EQ(stored.parent_block_hash, EventHashOf(request, 3));
  EXPECT_EQ(stored.token_ids, Tokens(2, 8));
}

TEST(PoolEvents, AFullBlockReplacesItsPartialEntry) {
  BlockPool pool(Pool(5, 4));
  const CacheRequest request = HashedRequest(8, 4);
  const auto table = Allocated(pool, 1);
  pool.CachePartialBlock({request, kGroup2, table[0], 4});
  TakeEvents(pool);
  pool.CacheFullBlocks({request, kGroup2, 8, table, 0, 1});
  const std::vector<Event> events = TakeEvents(pool);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<BlockRemoved>(events[0]).block_hashes, std::vector{EventHashOf(request, 0)});
  EXPECT_EQ(std::get<BlockStored>(events[1]).block_hashes, std::vector{EventHashOf(request, 1)});
}

// Full report of 3 of 4 blocks, group 1, block size 4: one event with 3 hashes, no parent, 12
// tokens, medium GPU. The state does not change. A report of 0 blocks sends no event.
TEST(PoolEvents, AReportAnnouncesLeadingBlocksAgainAndChangesNothing) {
  BlockPool pool(Pool(5, 4));
  const CacheRequest request = HashedRequest(16, 4);
  pool.ReportBlocks(request, GroupIdx(1), 4, std::vector<BlockId>(3, kNullBlock));
  const auto stored = OnlyEvent<BlockStored>(pool);
  EXPECT_EQ(stored.block_hashes.size(), 3u);
  EXPECT_EQ(stored.parent_block_hash, std::nullopt);
  EXPECT_EQ(stored.token_ids, Tokens(12));
  EXPECT_EQ(stored.medium, "GPU");
  EXPECT_EQ(stored.group_idx, 1);
  EXPECT_EQ(pool.cached().num_entries(), 0u);
  pool.ReportBlocks(request, GroupIdx(1), 4, {});
  EXPECT_TRUE(TakeEvents(pool).empty());
}

TEST(PoolEvents, ResetSendsAllBlocksClearedAndARefusedResetSendsNothing) {
  BlockPool pool(Pool(5, 4));
  const CacheRequest request = HashedRequest(4, 4);
  const auto table = Allocated(pool, 1);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 1});
  TakeEvents(pool);
  EXPECT_FALSE(pool.Reset());
  EXPECT_TRUE(TakeEvents(pool).empty());
  pool.Free(table);
  EXPECT_TRUE(pool.Reset());
  OnlyEvent<AllBlocksCleared>(pool);
}

TEST(PoolEvents, MovingKeysToACopySendsNoEvent) {
  BlockPool pool(Pool(5, 4));
  const CacheRequest request = HashedRequest(4, 4);
  const auto table = Allocated(pool, 2);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 1});
  TakeEvents(pool);
  pool.MoveKeys(table[0], table[1]);
  EXPECT_TRUE(TakeEvents(pool).empty());
}

TEST(PoolEvents, NoneWhenSwitchedOff) {
  PoolOptions options = Pool(5, 4);
  options.events.enabled = false;
  BlockPool pool(options);
  const CacheRequest request = HashedRequest(4, 4);
  const auto table = Allocated(pool, 1);
  pool.CacheFullBlocks({request, kGroup2, 4, table, 0, 1});
  pool.ReportBlocks(request, kGroup2, 4, table);
  pool.Free(table);
  pool.Reset();
  EXPECT_TRUE(TakeEvents(pool).empty());
}

}  // namespace
}  // namespace kvcast::engine
