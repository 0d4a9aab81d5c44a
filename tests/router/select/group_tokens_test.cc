// GroupTokens keeps the tokens of any number of groups. Copies are independent.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/group_tokens.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

namespace kvcast {
namespace {

std::vector<int64_t> Numbers(size_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 10);
  return numbers;
}

GroupTokens Filled(size_t count) {
  GroupTokens tokens;
  tokens.assign(count, 7);
  EXPECT_EQ(tokens, std::vector<int64_t>(count, 7));
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int64_t>(10 + i);
  return tokens;
}

TEST(GroupTokens, AnyNumberOfGroupsIsKept) {
  for (const size_t count : {0, 1, 4, 5, 64}) {
    SCOPED_TRACE(count);
    const GroupTokens tokens = Filled(count);
    EXPECT_EQ(tokens.size(), count);
    EXPECT_EQ(tokens.empty(), count == 0);
    EXPECT_EQ(tokens, Numbers(count));
  }
}

TEST(GroupTokens, CopiesAreIndependent) {
  for (const size_t count : {3, 9}) {
    const GroupTokens tokens = Filled(count);
    GroupTokens copy = tokens;
    EXPECT_EQ(copy, tokens);
    copy[0] = 0;
    EXPECT_EQ(tokens, Numbers(count));
    EXPECT_FALSE(copy == tokens);
  }
}

TEST(GroupTokens, AssignmentsAndMovesKeepTheTokens) {
  for (const size_t count : {0, 3, 9}) {
    for (const size_t before : {0, 2, 6, 12}) {
      SCOPED_TRACE(::testing::Message() << count << " over " << before);
      const GroupTokens tokens = Filled(count);
      GroupTokens copy = Filled(before);
      copy = tokens;
      EXPECT_EQ(copy, Numbers(count));
      GroupTokens moved = Filled(before);
      moved = std::move(copy);
      EXPECT_EQ(moved, Numbers(count));
      const GroupTokens built(std::move(moved));
      EXPECT_EQ(built, Numbers(count));
      EXPECT_EQ(tokens, Numbers(count));
    }
  }
}

TEST(GroupTokens, AMovedObjectIsEmptyAndUsable) {
  for (const size_t count : {3, 9}) {
    GroupTokens tokens = Filled(count);
    const GroupTokens moved(std::move(tokens));
    EXPECT_TRUE(tokens.empty());  // NOLINT(bugprone-use-after-move)
    tokens = Filled(5);
    EXPECT_EQ(tokens, Numbers(5));
  }
}

TEST(GroupTokens, AssignReplacesAllTokens) {
  GroupTokens tokens = Filled(9);
  tokens.assign(2, 5);
  EXPECT_EQ(tokens, (std::vector<int64_t>{5, 5}));
  tokens.assign(6, 1);
  EXPECT_EQ(tokens, std::vector<int64_t>(6, 1));
  EXPECT_FALSE(tokens == std::vector<int64_t>(5, 1));
  EXPECT_EQ((GroupTokens{1, 2}), (std::vector<int64_t>{1, 2}));
}

}  // namespace
}  // namespace kvcast
