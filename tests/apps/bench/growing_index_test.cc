// The index holds the blocks that Conversations defines, and its answers match these blocks.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/growing_index.h"

#include <gtest/gtest.h>

namespace kvcast::bench {
namespace {

class GrowingIndexTest : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Workers, GrowingIndexTest, ::testing::Values(2, 3, 8));

TEST_P(GrowingIndexTest, TheIndexCountsTheBlocksOfTheContent) {
  GrowingIndex index(GetParam());
  ASSERT_TRUE(index.AddWorkers().ok());
  EXPECT_EQ(index.held(), 0u);
  const Conversations content(GetParam());
  const auto never = [] { return false; };
  index.Grow(5 * content.wave_residencies(), never);
  EXPECT_NEAR(static_cast<double>(index.held()),
              static_cast<double>(5 * content.wave_residencies()),
              static_cast<double>(content.wave_residencies()));
  EXPECT_EQ(index.CountedResidencies().value(), index.held());
  EXPECT_EQ(index.Ask(200).wrong, 0u);
  const uint64_t before = index.held();
  const auto replaced = index.Replace(2 * content.wave_residencies() + 1, never);
  EXPECT_EQ(replaced.blocks, 4 * content.wave_residencies());
  ASSERT_TRUE(index.MeasureLeave().ok());
  EXPECT_EQ(index.held(), before);
  EXPECT_EQ(index.CountedResidencies().value(), before);
  EXPECT_EQ(index.Ask(200).wrong, 0u);
}

TEST(GrowingIndex, StopsAfterAWaveIfItIsFull) {
  GrowingIndex index(2);
  ASSERT_TRUE(index.AddWorkers().ok());
  const Conversations content(2);
  const uint64_t wave = content.wave_residencies();
  index.Grow(100 * wave, [] { return true; });
  EXPECT_EQ(index.held(), content.system_residencies() + wave);
  EXPECT_EQ(index.Replace(100 * wave, [] { return true; }).blocks, 2 * wave);
}

}  // namespace
}  // namespace kvcast::bench
