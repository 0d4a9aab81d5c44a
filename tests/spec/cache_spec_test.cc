// The names, the admission caps and the skipped tokens of the kinds.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/cache_spec.h"

#include <gtest/gtest.h>

namespace kvcast {
namespace {

GroupSpec WindowOf(int64_t window) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = 16, .sliding_window = window};
}

TEST(SpecKind, NamesEqualTheNamesInEventsAndParseBack) {
  EXPECT_EQ(SpecKindName(SpecKind::kFullAttention), "full_attention");
  EXPECT_EQ(SpecKindName(SpecKind::kSlidingWindowMla), "sliding_window_mla");
  EXPECT_EQ(SpecKindName(SpecKind::kMamba), "mamba");
  for (int i = 0; i <= static_cast<int>(SpecKind::kUnknown); ++i) {
    const auto kind = static_cast<SpecKind>(i);
    EXPECT_EQ(ParseSpecKind(SpecKindName(kind)), kind);
  }
  EXPECT_EQ(ParseSpecKind("flash_attention_9"), SpecKind::kUnknown);
}

TEST(MaxAdmissionBlocks, WindowCapIsWindowPlusTokensInFlightPlusOneBlock) {
  EXPECT_EQ(MaxAdmissionBlocks(WindowOf(1024), 16384, 1024), 129);
  EXPECT_EQ(MaxAdmissionBlocks(WindowOf(1024), 16384, 2048), 193);
  EXPECT_EQ(MaxAdmissionBlocks(WindowOf(64), 1024, 128), 13);
  EXPECT_EQ(MaxAdmissionBlocks(WindowOf(64), 100, 8192), 8);
  GroupSpec mtp = WindowOf(64);
  mtp.extra_retained_tokens = 16;
  EXPECT_EQ(MaxAdmissionBlocks(mtp, 1024, 128), 14);
}

TEST(MaxAdmissionBlocks, ChunkedHoldsItsChunkAndTheTokensInFlight) {
  GroupSpec group{.kind = SpecKind::kChunkedLocalAttention, .block_size = 16, .chunk_size = 128};
  EXPECT_EQ(MaxAdmissionBlocks(group, 1024, 64), 12);
  EXPECT_EQ(MaxAdmissionBlocks(group, 100, 64), 7);
}

TEST(MaxAdmissionBlocks, FullAttentionAndMambaHaveNoCap) {
  EXPECT_EQ(MaxAdmissionBlocks(GroupSpec{}, 1024, 64), std::nullopt);
  EXPECT_EQ(MaxAdmissionBlocks({.kind = SpecKind::kMamba}, 1024, 64), std::nullopt);
}

TEST(SkippedTokens, WindowSkipsAllTokensBeforeTheWindow) {
  GroupSpec window = WindowOf(4);
  window.block_size = 2;
  EXPECT_EQ(SkippedTokens(window, 3), 0);
  EXPECT_EQ(SkippedTokens(window, 7), 4);
  window.extra_retained_tokens = 2;
  EXPECT_EQ(SkippedTokens(window, 7), 2);
}

TEST(SkippedTokens, ChunkedSkipsWholeChunks) {
  GroupSpec group{.kind = SpecKind::kChunkedLocalAttention, .block_size = 4, .chunk_size = 8};
  EXPECT_EQ(SkippedTokens(group, 7), 0);
  EXPECT_EQ(SkippedTokens(group, 8), 8);
  EXPECT_EQ(SkippedTokens(group, 13), 8);
}

TEST(SkippedTokens, MambaKeepsTheLastStateAndFullAttentionAll) {
  EXPECT_EQ(SkippedTokens({.kind = SpecKind::kMamba}, 10), 9);
  EXPECT_EQ(SkippedTokens({.kind = SpecKind::kMamba}, 0), 0);
  EXPECT_EQ(SkippedTokens({}, 1000), 0);
}

}  // namespace
}  // namespace kvcast
