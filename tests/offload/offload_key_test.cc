// Offload keys have the specified byte form.
// SPDX-License-Identifier: Apache-2.0
#include <unordered_set>

#include "tests/offload/offload_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;

OffloadKey KeyOf(const std::vector<uint8_t>& hash, uint32_t group) {
  OffloadKey key;
  std::copy(hash.begin(), hash.end(), key.digest.data.begin());
  key.digest.size = static_cast<uint8_t>(hash.size());
  key.group = GroupIdx(group);
  return key;
}

TEST(OffloadKey, IsTheHashThenTheGroupAs4BytesBigEndian) {
  const OffloadKeyBytes bytes = ToBytes(KeyOf({0xaa, 0xbb, 0xcc}, 0x01020304));
  EXPECT_THAT(bytes.bytes(), ElementsAre(0xaa, 0xbb, 0xcc, 1, 2, 3, 4));
}

TEST(OffloadKey, OfASha256HashHas36Bytes) {
  const OffloadKeyBytes bytes = ToBytes(KeyOf(std::vector<uint8_t>(32, 7), UINT32_MAX));
  EXPECT_EQ(bytes.bytes().size(), 36u);
}

TEST(OffloadKey, IsParsedFromItsOwnBytes) {
  for (const size_t size : {1, 8, 16, 32}) {
    for (const uint32_t group : {0u, 255u, 65536u, UINT32_MAX}) {
      const OffloadKey key = KeyOf(std::vector<uint8_t>(size, 0x5a), group);
      const auto parsed = ParseOffloadKey(ToBytes(key).bytes());
      ASSERT_TRUE(parsed.ok());
      EXPECT_EQ(*parsed, key);
    }
  }
}

TEST(OffloadKey, TooFewOrTooManyBytesAreRefused) {
  for (const size_t size : {0, 3, 4, 37, 100}) {
    EXPECT_EQ(ParseOffloadKey(std::vector<uint8_t>(size, 1)).status().code(),
              StatusCode::kMalformed);
  }
}

TEST(OffloadKey, HashesOfDifferentGroupsDiffer) {
  std::unordered_set<size_t> hashes;
  for (uint32_t group = 0; group < 64; ++group)
    hashes.insert(std::hash<OffloadKey>()(Key(1, group)));
  EXPECT_EQ(hashes.size(), 64u);
}

}  // namespace
}  // namespace kvcast::offload
