// The queue gives free blocks in the documented order.
// SPDX-License-Identifier: Apache-2.0
#include "src/engine/free_block_queue.h"

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

TEST(FreeBlockQueue, StartsWithAllBlocksInAscendingOrder) {
  FreeBlockQueue queue(5);
  EXPECT_EQ(queue.size(), 5);
  EXPECT_EQ(ToIds(queue.List()), (Ids{0, 1, 2, 3, 4}));
}

// Queue [0..4]: pop, remove 2, append 2. The order is 1, 3, 4, 2.
TEST(FreeBlockQueue, PopThenRemoveFromTheMiddleThenAppendGives1342) {
  FreeBlockQueue queue(5);
  EXPECT_EQ(queue.PopFront(), BlockId(0));
  queue.Remove(BlockId(2));
  EXPECT_FALSE(queue.Contains(BlockId(2)));
  const auto again = ToBlocks({2});
  queue.Append(again);
  EXPECT_EQ(ToIds(queue.List()), (Ids{1, 3, 4, 2}));
  EXPECT_EQ(queue.size(), 4);
}

// Prepend [4,5] to [0], then prepend [1,2]. The order is 1, 2, 4, 5, 0.
TEST(FreeBlockQueue, PrependKeepsTheOrderOfEachCall) {
  FreeBlockQueue queue(6);
  for (int i = 0; i < 6; ++i) queue.PopFront();
  EXPECT_EQ(queue.size(), 0);
  queue.Append(ToBlocks({0}));
  queue.Prepend(ToBlocks({4, 5}));
  queue.Prepend(ToBlocks({1, 2}));
  EXPECT_EQ(ToIds(queue.List()), (Ids{1, 2, 4, 5, 0}));
}

TEST(FreeBlockQueue, EarlyBlocksAreAfterTheOtherBlocksAndBeforeTheAppendedOnes) {
  FreeBlockQueue queue(7);
  for (int i = 0; i < 5; ++i) queue.PopFront();  // 5 and 6 are left
  queue.Append(ToBlocks({0}));
  queue.InsertEarly(ToBlocks({4, 3}));
  queue.InsertEarly(ToBlocks({2}));
  queue.Prepend(ToBlocks({1}));
  EXPECT_EQ(ToIds(queue.List()), (Ids{1, 5, 6, 4, 3, 2, 0}));
  for (const uint32_t id : {1, 5, 6, 4, 3, 2, 0}) EXPECT_EQ(queue.PopFront(), BlockId(id));
  queue.Append(ToBlocks({0}));
  queue.InsertEarly(ToBlocks({1}));
  EXPECT_EQ(ToIds(queue.List()), (Ids{1, 0})) << "after the queue was empty";
}

TEST(FreeBlockQueue, IsWalkedFromTheHeadOrFromAnyBlockInIt) {
  FreeBlockQueue queue(3);
  queue.Remove(BlockId(1));
  EXPECT_EQ(queue.Next(std::nullopt), BlockId(0));
  EXPECT_EQ(queue.Next(BlockId(0)), BlockId(2));
  EXPECT_EQ(queue.Next(BlockId(2)), std::nullopt);
  queue.Remove(BlockId(0));
  queue.Remove(BlockId(2));
  EXPECT_EQ(queue.Next(std::nullopt), std::nullopt);
}

TEST(FreeBlockQueue, CanBeFilledAgainAfterItWasEmpty) {
  FreeBlockQueue queue(2);
  queue.Remove(BlockId(1));
  queue.Remove(BlockId(0));
  EXPECT_TRUE(queue.List().empty());
  queue.Append(ToBlocks({1, 0}));
  EXPECT_EQ(queue.PopFront(), BlockId(1));
}

}  // namespace
}  // namespace kvcast::engine
