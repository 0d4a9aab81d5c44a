// FixedPoint finds the prefix that all groups can serve. It searches the groups of a cache in the
// specified order and with the right limits.
// SPDX-License-Identifier: Apache-2.0
#include "src/spec/fixed_point.h"

#include <gtest/gtest.h>

#include <ostream>

namespace kvcast::internal {
namespace {

struct Call {
  size_t group;
  int64_t limit;
  bool drop;
  friend bool operator==(const Call&, const Call&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Call& call) {
    return out << "{" << call.group << "," << call.limit << "," << call.drop << "}";
  }
};

SpecGroup OneMember(SpecKind kind, size_t index, bool eagle = false, int64_t block_size = 16) {
  SpecGroup group;
  group.spec.kind = kind;
  group.spec.block_size = block_size;
  group.spec.eagle = eagle;
  group.members = {index};
  return group;
}

// Returns the given answers to searches in turn, and records the calls.
class Script {
 public:
  explicit Script(std::vector<int64_t> answers) : answers_(std::move(answers)) {}
  FixedPoint Run(std::vector<SpecGroup> groups, int64_t alignment, int64_t max_tokens,
                 int64_t eagle_limit = 0) {
    return FindFixedPoint(groups, alignment, max_tokens, eagle_limit,
                          [this](size_t group, int64_t limit, bool drop) {
                            calls_.push_back({group, limit, drop});
                            const size_t index = calls_.size() - 1;
                            return index < answers_.size() ? answers_[index] : int64_t{0};
                          });
  }
  const std::vector<Call>& calls() const { return calls_; }

 private:
  std::vector<int64_t> answers_;
  std::vector<Call> calls_;
};

constexpr SpecKind kFull = SpecKind::kFullAttention;
constexpr SpecKind kWindow = SpecKind::kSlidingWindow;

TEST(FixedPoint, FullAttentionAndOneOtherGroupAreSearchedOnce) {
  Script script({96, 32});
  const FixedPoint point = script.Run({OneMember(kFull, 0), OneMember(kWindow, 1)}, 16, 100);
  EXPECT_EQ(point.tokens, 32);
  EXPECT_EQ(point.longest, 96);
  EXPECT_EQ(script.calls(), (std::vector<Call>{{0, 100, false}, {1, 96, false}}));
}

TEST(FixedPoint, FullAttentionIsSearchedOnceAndOthersUntilARoundChangesNothing) {
  Script script({96, 80, 48, 32, 32, 32, 32});
  const auto groups = {OneMember(kFull, 0), OneMember(kWindow, 1), OneMember(kWindow, 2, false, 8)};
  EXPECT_EQ(script.Run(groups, 16, 100).tokens, 32);
  EXPECT_EQ(script.calls(), (std::vector<Call>{{0, 100, false},
                                               {1, 96, false},
                                               {2, 80, false},
                                               {1, 48, false},
                                               {2, 32, false},
                                               {1, 32, false},
                                               {2, 32, false}}));
}

TEST(FixedPoint, EagleLooksOneBlockPastTheCandidateButNotPastTheLimit) {
  Script script({96, 64, 64});
  script.Run({OneMember(kFull, 0), OneMember(kWindow, 1, true), OneMember(kWindow, 2)}, 16, 100);
  EXPECT_EQ(script.calls()[1], (Call{1, 100, true}));
  Script lower({48, 48, 48});
  lower.Run({OneMember(kFull, 0), OneMember(kWindow, 1, true), OneMember(kWindow, 2)}, 16, 100);
  EXPECT_EQ(lower.calls()[1], (Call{1, 64, true}));
}

TEST(FixedPoint, EagleLooksPastTheLongestHitUpToItsOwnLimit) {
  Script script({96, 64, 64});
  script.Run({OneMember(kFull, 0, true), OneMember(kWindow, 1, true), OneMember(kWindow, 2)}, 16,
             100, 112);
  EXPECT_EQ(script.calls()[0], (Call{0, 112, true}));
  EXPECT_EQ(script.calls()[1], (Call{1, 112, true}));
  Script wide({96, 64, 64});
  wide.Run({OneMember(kFull, 0, true), OneMember(kWindow, 1), OneMember(kWindow, 2)}, 16, 100, 200);
  EXPECT_EQ(wide.calls()[0], (Call{0, 116, true}));
  EXPECT_EQ(wide.calls()[1], (Call{1, 96, false}));
}

TEST(FixedPoint, EagleOfAStateLooksNoFurther) {
  Script script({48, 48, 48});
  script.Run({OneMember(kFull, 0), OneMember(SpecKind::kMamba, 1, true), OneMember(kWindow, 2)}, 16,
             100);
  EXPECT_EQ(script.calls()[1], (Call{1, 48, true}));
}

TEST(FixedPoint, EagleOnAFinerGridLooksOneGridStepFurther) {
  Script script({48, 48, 48});
  const auto mla = SpecKind::kMlaAttention;
  script.Run({OneMember(kFull, 0, false, 64), OneMember(mla, 1, true, 64),
              OneMember(kWindow, 2, false, 4)},
             4, 100);
  EXPECT_EQ(script.calls()[1], (Call{1, 52, true}));
}

// Group 1 dropped its block at 80. Then group 2 shortens the candidate to 48, and group 1 must drop
// a block again at 48.
TEST(FixedPoint, AShorterCandidateNeedsItsOwnDrop) {
  Script script({96, 80, 48, 48, 48});
  script.Run({OneMember(kFull, 0), OneMember(kWindow, 1, true), OneMember(kWindow, 2)}, 16, 100);
  ASSERT_GE(script.calls().size(), 5u);
  EXPECT_EQ(script.calls()[3], (Call{1, 64, true}));
}

// Group 2 shortens the candidate by its own drop. Group 1 need not drop a block again.
TEST(FixedPoint, ADropThatShortensKeepsEarlierDrops) {
  Script script({96, 80, 48, 48, 48});
  script.Run({OneMember(kFull, 0), OneMember(kWindow, 1, true), OneMember(kWindow, 2, true, 8)}, 16,
             100);
  ASSERT_GE(script.calls().size(), 5u);
  EXPECT_EQ(script.calls()[2], (Call{2, 88, true}));
  EXPECT_EQ(script.calls()[3], (Call{1, 48, false}));
  EXPECT_EQ(script.calls()[4], (Call{2, 48, false}));
}

TEST(FixedPoint, IsZeroWithoutGroupsOrTokens) {
  Script script({});
  EXPECT_EQ(script.Run({}, 16, 100).tokens, 0);
  EXPECT_EQ(script.Run({OneMember(kFull, 0)}, 16, 0).tokens, 0);
  EXPECT_TRUE(script.calls().empty());
}

TEST(SpecGroups, EqualSpecsAreOneGroupAndFullAttentionComesFirst) {
  GroupSpec window{.kind = kWindow, .block_size = 16, .sliding_window = 64};
  GroupSpec eagle_window = window;
  eagle_window.eagle = true;
  GroupSpec other_window = window;
  other_window.sliding_window = 128;
  GroupSpec full;
  GroupSpec cross{.kind = SpecKind::kCrossAttention};
  const GroupSpec* specs[] = {&window, &cross, &other_window, &full, &eagle_window};
  const auto groups = GroupBySpec(specs);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].members, std::vector<size_t>{3});
  EXPECT_EQ(groups[1].members, (std::vector<size_t>{0, 4}));
  EXPECT_TRUE(groups[1].spec.eagle);
  EXPECT_EQ(groups[2].members, std::vector<size_t>{2});
}

}  // namespace
}  // namespace kvcast::internal
