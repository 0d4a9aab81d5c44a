// The cached block map maps a key to the blocks that hold it.
// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cached_block_map.h"

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

BlockKey Key(uint8_t name, uint32_t group = 0) {
  BlockKey key{{}, GroupIdx(group)};
  key.digest.size = 32;
  key.digest.data[0] = name;
  return key;
}

std::vector<BlockKey> Remove(CachedBlockMap& map, uint32_t block) {
  std::vector<BlockKey> removed;
  map.RemoveBlock(BlockId(block), [&](const BlockKey& key, bool) { removed.push_back(key); });
  return removed;
}

// If a key has 2 blocks, the lookup finds the block that was inserted first.
TEST(CachedBlockMap, FindsTheFirstInsertedOfTwoBlocksUnderOneKey) {
  CachedBlockMap map(10);
  map.Insert(Key(1), BlockId(7), 16);
  map.Insert(Key(1), BlockId(3), 16);
  EXPECT_EQ(map.Find(Key(1)), BlockId(7));
  EXPECT_EQ(map.num_keys(), 1u);
  EXPECT_EQ(map.num_entries(), 2u);
  EXPECT_EQ(Remove(map, 7), std::vector{Key(1)});
  EXPECT_EQ(map.Find(Key(1)), BlockId(3));
  Remove(map, 3);
  EXPECT_EQ(map.Find(Key(1)), std::nullopt);
  EXPECT_EQ(map.num_keys(), 0u);
}

// If a removal names a block id that does not hold the key, the map is unchanged.
TEST(CachedBlockMap, RemovingABlockThatDoesNotHoldTheKeyChangesNothing) {
  CachedBlockMap map(10);
  map.Insert(Key(1), BlockId(7), 16);
  EXPECT_TRUE(Remove(map, 5).empty());
  EXPECT_EQ(map.Find(Key(1)), BlockId(7));
}

TEST(CachedBlockMap, GroupsHaveKeysOfTheirOwn) {
  CachedBlockMap map(10);
  map.Insert(Key(1, 0), BlockId(7), 16);
  EXPECT_EQ(map.Find(Key(1, 1)), std::nullopt);
}

TEST(CachedBlockMap, RemovingABlockRemovesItsPrimaryKeyAndThenItsAliases) {
  CachedBlockMap map(10);
  map.Insert(Key(1), BlockId(7), 64);
  map.Insert(Key(2), BlockId(7), 48);
  EXPECT_EQ(map.PrimaryKey(BlockId(7)), Key(1));
  EXPECT_EQ(map.PrimaryCoveredTokens(BlockId(7)), 64);
  EXPECT_EQ(Remove(map, 7), (std::vector{Key(1), Key(2)}));
  EXPECT_FALSE(map.HasKeys(BlockId(7)));
}

TEST(CachedBlockMap, MovedKeysPointToTheNewBlockBehindOtherHolders) {
  CachedBlockMap map(10);
  map.Insert(Key(1), BlockId(7), 16);
  map.Insert(Key(1), BlockId(8), 16);
  map.MoveKeys(BlockId(7), BlockId(9));
  EXPECT_FALSE(map.HasKeys(BlockId(7)));
  EXPECT_EQ(map.Find(Key(1)), BlockId(8));
  EXPECT_TRUE(map.Contains(Key(1), BlockId(9)));
  EXPECT_TRUE(map.IsConsistent());
}

TEST(CachedBlockMap, ForgetsEverythingOnClear) {
  CachedBlockMap map(10);
  map.Insert(Key(1), BlockId(7), 16);
  map.Insert(Key(2), BlockId(8), 16);
  map.Clear();
  EXPECT_EQ(map.num_entries(), 0u);
  EXPECT_FALSE(map.HasKeys(BlockId(7)));
  map.Insert(Key(2), BlockId(7), 16);
  EXPECT_EQ(map.Find(Key(2)), BlockId(7));
  EXPECT_TRUE(map.IsConsistent());
}

}  // namespace
}  // namespace kvcast::engine
