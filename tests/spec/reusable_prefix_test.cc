// The reusable prefix of several groups is the prefix that all groups can serve together.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "kvcast/spec/reuse.h"
#include "src/base/clock.h"

namespace kvcast {
namespace {

GroupResidency Group(GroupSpec spec, const char* blocks) {
  GroupResidency group{spec, Bitmap(static_cast<int64_t>(std::string_view(blocks).size())), {}};
  for (int64_t i = 0; i < group.blocks.size(); ++i) {
    if (blocks[i] == '1') group.blocks.Set(i);
  }
  return group;
}

GroupSpec Full(int64_t block_size = 16) { return {.block_size = block_size}; }

GroupSpec Window(int64_t window, int64_t block_size = 16) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}

GroupSpec Mamba(int64_t block_size = 16) {
  return {.kind = SpecKind::kMamba, .block_size = block_size, .mamba_mode = MambaMode::kAlign};
}

TEST(ReusablePrefix, IsNotTheMinimumOfTheGroupsOwnPrefixes) {
  const std::vector<GroupResidency> groups = {Group(Full(), "111100"), Group(Mamba(), "010001")};
  const Reuse reuse = ReusablePrefix(groups, 16, 16, 96);
  EXPECT_EQ(reuse.per_group_tokens, (std::vector<int64_t>{64, 96}));
  EXPECT_EQ(reuse.tokens, 32);
}

TEST(ReusablePrefix, StaysOnTheAlignmentGrid) {
  const std::vector<GroupResidency> groups = {Group(Full(32), "1110"),
                                              Group(Window(8, 8), "111111111111")};
  EXPECT_EQ(ReusablePrefix(groups, 8, 32, 95).tokens, 64);
  EXPECT_EQ(ReusablePrefix(groups, 8, 32, 96).tokens, 96);
}

TEST(ReusablePrefix, CountsABlockOfEqualGroupsOnlyIfAllHoldIt) {
  const std::vector<GroupResidency> groups = {Group(Window(32), "0111"), Group(Window(32), "0110")};
  const Reuse reuse = ReusablePrefix(groups, 16, 16, 64);
  EXPECT_EQ(reuse.tokens, 48);
  EXPECT_EQ(reuse.per_group_tokens, (std::vector<int64_t>{48, 48}));
}

TEST(ReusablePrefix, LeavesOutKindsThatNeverTakePart) {
  GroupSpec cross;
  cross.kind = SpecKind::kCrossAttention;
  const std::vector<GroupResidency> groups = {Group(cross, ""), Group(Full(), "11")};
  const Reuse reuse = ReusablePrefix(groups, 16, 16, 40);
  EXPECT_EQ(reuse.tokens, 32);
  EXPECT_EQ(reuse.per_group_tokens, (std::vector<int64_t>{0, 32}));
}

TEST(ReusablePrefix, LeavesOutGroupsOutsidePrefixCaching) {
  GroupSpec window = Window(32);
  window.prefix_cacheable = false;
  const std::vector<GroupResidency> groups = {Group(Full(), "11"), Group(window, "00")};
  const Reuse reuse = ReusablePrefix(groups, 16, 16, 40);
  EXPECT_EQ(reuse.tokens, 32);
  EXPECT_EQ(reuse.per_group_tokens, (std::vector<int64_t>{32, 0}));
}

TEST(ReusablePrefix, EagleMayLookPastTheLongestHit) {
  std::vector<GroupResidency> groups = {Group(Full(), "1111"), Group(Window(32), "1111")};
  for (GroupResidency& group : groups) group.spec.eagle = true;
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 48).tokens, 32);
  const Reuse reuse = ReusablePrefix(groups, 16, 16, 48, 64);
  EXPECT_EQ(reuse.tokens, 48);
  EXPECT_EQ(reuse.per_group_tokens, (std::vector<int64_t>{48, 48}));
  // The lookup goes one block past the candidate and no further: the hit stays within max_tokens.
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 32, 64).tokens, 32);
}

TEST(EagleLimit, IsTheHashedLengthFromV032OnIfThereAreSeveralGroups) {
  EXPECT_EQ(EagleLimit(EngineRules::kMain2026August, 2, 63, 64), 63);
  EXPECT_EQ(EagleLimit(EngineRules::kV032, 2, 63, 64), 64);
  EXPECT_EQ(EagleLimit(EngineRules::kV033, 2, 63, 64), 64);
  EXPECT_EQ(EagleLimit(EngineRules::kV032, 1, 63, 64), 63);
  EXPECT_EQ(EagleLimit(EngineRules::kV032, 2, 70, 64), 70);
}

TEST(ReusablePrefix, IsZeroWithoutGroupsTokensOrBlocks) {
  EXPECT_EQ(ReusablePrefix({}, 16, 16, 100).tokens, 0);
  const std::vector<GroupResidency> groups = {Group(Full(), "111")};
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 0).tokens, 0);
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, -1).tokens, 0);
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 15).tokens, 0);
}

TEST(ReusablePrefix, EndsInsideABlockIfAStateEndsThere) {
  GroupResidency mamba = Group(Mamba(64), "10");
  mamba.partial_ends.Resize(8);
  mamba.partial_ends.Set(5);
  GroupResidency full = Group(Full(64), "10");
  full.partial_ends.Resize(8);
  full.partial_ends.Set(5);
  const std::vector<GroupResidency> groups = {full, mamba};
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 100).tokens, 96);
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 95).tokens, 64);
}

TEST(ReusablePrefix, FullAttentionServesABoundaryInsideAWholeBlock) {
  GroupResidency mamba = Group(Mamba(64), "00");
  mamba.partial_ends.Resize(8);
  mamba.partial_ends.Set(5);
  const std::vector<GroupResidency> groups = {Group(Full(64), "11"), mamba};
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 128).tokens, 96);
  // The block counts as a whole only if it lies within the limit.
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 127).tokens, 0);
}

TEST(ReusablePrefix, EagleLeavesTheLastBlockToBeComputedAgain) {
  GroupSpec full = Full();
  full.eagle = true;
  GroupSpec window = Window(48);
  window.eagle = true;
  const std::vector<GroupResidency> groups = {Group(full, "111111"), Group(window, "001111")};
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 96).tokens, 80);
  EXPECT_EQ(ReusablePrefix(groups, 16, 16, 95).tokens, 0);
}

// Without EAGLE, and without hits inside blocks, the result is the highest boundary on the grid at
// which every group holds the blocks that its kind needs. The order of the groups does not matter.
int64_t HighestCommonBoundary(const std::vector<GroupResidency>& groups, int64_t alignment,
                              int64_t max_tokens) {
  for (int64_t end = max_tokens / alignment * alignment; end > 0; end -= alignment) {
    bool usable = true;
    for (const GroupResidency& group : groups) {
      const int64_t size = group.spec.block_size;
      int64_t first = 0;
      if (group.spec.kind == SpecKind::kMamba) first = end / size - 1;
      if (IsWindowKind(group.spec.kind)) {
        first = std::max<int64_t>(0, end / size - CeilDiv(group.spec.sliding_window - 1, size));
      }
      for (int64_t i = first; i < end / size; ++i) usable = usable && group.blocks.Test(i);
    }
    if (usable) return end;
  }
  return 0;
}

TEST(ReusablePrefix, IsTheHighestBoundaryThatAllGroupsCanServe) {
  int hits = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    std::vector<GroupResidency> groups;
    const int64_t count = pick(1, 4);
    for (int64_t g = 0; g < count; ++g) {
      const int64_t size = int64_t{4} << pick(0, 2);
      const GroupSpec specs[] = {Full(size), Window(pick(2, 100), size), Mamba(size)};
      GroupResidency group{specs[pick(0, 2)], Bitmap(320 / size), {}};
      const int64_t holes = pick(0, 4);
      for (int64_t i = 0; i < group.blocks.size(); ++i) {
        if (pick(0, 9) >= holes) group.blocks.Set(i);
      }
      groups.push_back(std::move(group));
    }
    const int64_t max_tokens = pick(0, 330);
    const int64_t expected = HighestCommonBoundary(groups, 16, max_tokens);
    hits += expected > 0 ? 1 : 0;
    ASSERT_EQ(ReusablePrefix(groups, 4, 16, max_tokens).tokens, expected) << "seed " << seed;
  }
  EXPECT_GT(hits, 500);
}

// Two groups allow every second boundary each, so the search goes down boundary by boundary, and
// each step visits all groups.
TEST(ReusablePrefix, ManyGroupsCostLinearTime) {
  const auto search_ns = [](int64_t blocks) {
    std::vector<GroupResidency> groups;
    for (int64_t g = 0; g < 22; ++g) {
      GroupResidency& group =
          groups.emplace_back(GroupResidency{Window(16 + g), Bitmap(blocks), {}});
      for (int64_t i = 0; i < blocks; ++i) {
        if (g > 1 || i % 2 == g) group.blocks.Set(i);
      }
    }
    const int64_t begin = ThreadCpuNs();
    EXPECT_EQ(ReusablePrefix(groups, 16, 16, 16 * blocks).tokens, 0);
    return ThreadCpuNs() - begin;
  };
  int64_t few_ns = std::numeric_limits<int64_t>::max();
  int64_t many_ns = few_ns;
  for (int run = 0; run < 10; ++run) {
    few_ns = std::min(few_ns, search_ns(1024));
    many_ns = std::min(many_ns, search_ns(8192));
  }
  // Linear: 8 times. Quadratic: 64 times.
  EXPECT_LT(many_ns, 24 * few_ns) << few_ns << " ns for an eighth of the blocks";
}

}  // namespace
}  // namespace kvcast
