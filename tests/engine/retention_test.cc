// Retention keeps the correct blocks of window and Mamba groups, and all blocks of other groups.
// SPDX-License-Identifier: Apache-2.0
#include "src/spec/retention.h"

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
using internal::FillRetentionMask;
using internal::RetentionRule;

namespace {

Ids AllOf(uint32_t count) {
  Ids ids(count);
  std::iota(ids.begin(), ids.end(), 0u);
  return ids;
}

// Returns the kept blocks of [0, blocks). The function fills the mask in two parts, as for two
// chunks of a prompt.
Ids Kept(const RetentionRule& rule, int64_t blocks, std::vector<int64_t> boundaries) {
  Ids kept;
  for (const auto& [begin, end] :
       {std::pair{int64_t{0}, blocks / 3}, std::pair{blocks / 3, blocks}}) {
    Bitmap mask;
    const bool sparse = FillRetentionMask(rule, begin, end, boundaries, mask);
    for (int64_t i = begin; i < end; ++i) {
      if (!sparse || mask.Test(i - begin)) kept.push_back(static_cast<uint32_t>(i));
    }
  }
  return kept;
}

RetentionRule MambaRule(std::optional<int64_t> interval) {
  return {Mamba(MambaMode::kAlign), 16, interval};
}

// Mamba mask, 256 tokens, block size 16: no retention and 16 keep all blocks, 64 keeps
// {3,7,11,14,15}, 0 keeps {14}, 0 with boundary 96 keeps {5,14}, 64 with 96 keeps {3,5,7,11,14,15}.
// Boundary 100 equals boundary 96.
TEST(Retention, MambaKeepsTheStatesAtSegmentEndsAndBoundaries) {
  EXPECT_EQ(Kept(MambaRule(std::nullopt), 16, {255}), AllOf(16));
  EXPECT_EQ(Kept(MambaRule(16), 16, {255}), AllOf(16));
  EXPECT_EQ(Kept(MambaRule(64), 16, {255}), (Ids{3, 7, 11, 14, 15}));
  EXPECT_EQ(Kept(MambaRule(0), 16, {255}), (Ids{14}));
  EXPECT_EQ(Kept(MambaRule(0), 16, {255, 96}), (Ids{5, 14}));
  EXPECT_EQ(Kept(MambaRule(64), 16, {255, 96}), (Ids{3, 5, 7, 11, 14, 15}));
  EXPECT_EQ(Kept(MambaRule(0), 16, {255, 100}), (Ids{5, 14})) << "100 is rounded down to 96";
}

// SWA mask, window 48, boundary 96, retention 0: {3,4,5,12,13,14}.
TEST(Retention, WindowKeepsWholeTailsBeforeBoundaries) {
  EXPECT_EQ(Kept({Window(48), 16, 0}, 16, {255, 96}), (Ids{3, 4, 5, 12, 13, 14}));
}

TEST(Retention, WindowAloneKeepsTheLastBlockOfEachSegment) {
  EXPECT_EQ(Kept({Window(16), 16, std::nullopt}, 16, {255}), AllOf(16));
  EXPECT_EQ(Kept({Window(16), 16, 64}, 16, {255}), (Ids{3, 7, 11, 14, 15}));
  EXPECT_EQ(Kept({Window(16), 16, 0}, 16, {255}), (Ids{14}));
}

TEST(Retention, DenseWindowKeepsOnlyBlocksThatAHitOnTheGridCanUse) {
  EXPECT_EQ(Kept({Window(8, 8), 32, std::nullopt}, 8, {63}), (Ids{3, 7}));
  EXPECT_EQ(Kept({Window(32, 16), 32, std::nullopt}, 6, {111}), AllOf(6));
}

TEST(Retention, EagleShiftsTheTailByTheBlockItGivesUp) {
  EXPECT_EQ(Kept({Eagle(Window(8, 8)), 32, 0}, 15, {126}), (Ids{11, 12}));
  EXPECT_EQ(Kept({Eagle(Window(8, 8)), 32, std::nullopt}, 9, {70}), (Ids{3, 4, 7, 8}));
}

TEST(Retention, FullAndChunkedAttentionKeepEverything) {
  EXPECT_EQ(Kept({Full(), 64, 0}, 8, {100}), AllOf(8));
  EXPECT_EQ(Kept({Chunked(64), 16, 64}, 8, {100}), AllOf(8));
}

}  // namespace
}  // namespace kvcast::engine
