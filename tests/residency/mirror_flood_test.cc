// Block hashes that a client chooses do not make the mirror of a publisher slower. A client may be
// able to compute the block hashes of its prompts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "src/residency/mirror.h"
#include "tests/support/flood.h"

namespace kvcast::residency {
namespace {

BlockHash HashOf(uint64_t number, bool is_bytes) {
  if (!is_bytes) return BlockHash(number);
  std::vector<uint8_t> bytes(32, 0);
  for (size_t i = 0; i < sizeof(number); ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return BlockHash::FromBytes(bytes);
}

void ExpectNoSlower(bool is_bytes) {
  const double ratio =
      testing::FloodCost(testing::EqualEnds(testing::FloodKeys(20'000)),
                         [is_bytes](const std::vector<uint64_t>& numbers) {
                           Mirror mirror;
                           for (const uint64_t number : numbers) {
                             BlockStored event;
                             event.block_hashes.push_back(HashOf(number, is_bytes));
                             event.block_size = 16;
                             event.medium = kMediumGpu;
                             event.token_ids.emplace();
                             EventBatch batch;
                             batch.events.emplace_back(std::move(event));
                             mirror.Apply(batch);
                           }
                           EXPECT_EQ(mirror.blocks(), numbers.size());
                         });
  EXPECT_LT(ratio, 3);
}

TEST(MirrorFlood, ChosenNumbersCostNoMore) { ExpectNoSlower(/*is_bytes=*/false); }
TEST(MirrorFlood, ChosenBytesCostNoMore) { ExpectNoSlower(/*is_bytes=*/true); }

}  // namespace
}  // namespace kvcast::residency
