// GroupTokens keeps the tokens of any number of groups. Copies are independent.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/group_tokens.h"

#include <gtest/gtest.h>

#include <numeric>
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
