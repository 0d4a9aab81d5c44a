// Shard sizes increase. From eight pieces on, each size is about an eighth larger than the previous
// size. Sizes above one piece are multiples of the piece size.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/shard_size.h"

#include <gtest/gtest.h>

namespace kvcast::router {
namespace {

TEST(ShardSizeTest, EachSizeIsAboutAnEighthLargerAndAMultipleOfThePieceSize) {
  EXPECT_EQ(kShardSizes[0], 0u);
  EXPECT_EQ(kShardSizes[1], 1u);
  size_t last = 1;
  for (; last + 1 < kShardSizes.size() && kShardSizes[last + 1] != 0; ++last) {
    const uint32_t size = kShardSizes[last];
    const uint32_t larger = kShardSizes[last + 1];
    ASSERT_GT(larger, size);
    EXPECT_EQ(larger > kPieceBuckets ? larger % kPieceBuckets : 0, 0u) << larger;
    if (size >= 8 * kPieceBuckets) {
      EXPECT_LE(larger * 100ull, size * 119ull) << size;
      EXPECT_GE(larger * 100ull, size * 106ull) << size;
    }
  }
  // All shards of the largest size together must hold 2^36 keys. Locators cannot distinguish more
  // keys.
  EXPECT_GE(kShardSizes[last], kMaxShardBuckets / 9 * 8);
  EXPECT_EQ(PiecesOf(0), 0u);
  EXPECT_EQ(PiecesOf(1), 1u);
  EXPECT_EQ(PiecesOf(kPieceBuckets), 1u);
  EXPECT_EQ(PiecesOf(kPieceBuckets + 1), 2u);
}

}  // namespace
}  // namespace kvcast::router
