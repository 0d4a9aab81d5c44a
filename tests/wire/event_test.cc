// Hashes keep their form and their bytes. CacheSaltOf finds a salt in the field or in the metadata.
// A failed decode does not change the counts. The reject reasons have different names.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/core/event.h"

#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

TEST(BlockHashValue, FormsAreDifferentValues) {
  const BlockHash number = BlockHash::FromUnsigned(5);
  EXPECT_EQ(number, BlockHash::FromSigned(5));
  EXPECT_FALSE(number == BlockHash::FromBytes(Payload{5}));
  EXPECT_FALSE(number == BlockHash::FromBytes(Payload{5, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_FALSE(BlockHash::FromSigned(-1) == BlockHash::FromUnsigned(UINT64_MAX));
  EXPECT_EQ(BlockHash(), BlockHash::FromUnsigned(0));
}

TEST(BlockHashValue, CopyAndMoveKeepBytesOfAnyLength) {
  for (const size_t size : {0u, 1u, 16u, 31u, 32u, 33u, 256u}) {
    const Payload bytes(size, 0xab);
    const BlockHash original = BlockHash::FromBytes(bytes);
    BlockHash copy = original;
    BlockHash assigned = BlockHash::FromBytes(Payload(40, 1));
    assigned = copy;
    const BlockHash moved = std::move(copy);
    for (const BlockHash& hash : {original, assigned, moved}) {
      EXPECT_EQ(ToHex(hash.bytes()), ToHex(bytes));
    }
    BlockHash target = BlockHash::FromBytes(Payload(50, 2));
    target = std::move(assigned);
    EXPECT_EQ(target, original);
  }
}

TEST(CacheSalt, IsFoundInTheFieldOrInTheMetadata) {
  BlockStored event;
  EXPECT_EQ(CacheSaltOf(event), "");
  event.metadata = {{"other", ExtraKey::Text("x")}, {"cache_salt", ExtraKey::Text("from-map")}};
  EXPECT_EQ(CacheSaltOf(event), "from-map");
  event.cache_salt = "from-field";
  EXPECT_EQ(CacheSaltOf(event), "from-field");
  event.cache_salt.reset();
  event.metadata = {{"cache_salt", ExtraKey::Int(5)}};
  EXPECT_EQ(CacheSaltOf(event), "");
}

TEST(DecodeCountsTest, AddUpAndAreNotChangedByAFailedDecode) {
  const Payload good = Encode(BatchOf(AllBlocksCleared()));
  EventBatch batch;
  DecodeCounts counts;
  ASSERT_TRUE(DecodeBatch(good, WireLimits(), batch, counts).ok());
  ASSERT_TRUE(DecodeBatch(good, WireLimits(), batch, counts).ok());
  EXPECT_EQ(counts.decoded, 2u);
  ASSERT_FALSE(DecodeBatch(std::span(good).first(20), WireLimits(), batch, counts).ok());
  EXPECT_EQ(counts.decoded, 2u);
  EXPECT_TRUE(batch.events.empty());
}

TEST(RejectNames, AreDistinct) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kRejectReasons; ++i) names.insert(RejectName(static_cast<Reject>(i)));
  EXPECT_EQ(names.size(), kRejectReasons);
}

}  // namespace
}  // namespace kvcast::wire
