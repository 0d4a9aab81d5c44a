// Prompts with an equal prefix have equal tokens and equal digests. A digest is the hash of the
// tokens.
// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace kvcast::simulate {
namespace {

constexpr int64_t kPromptBlock = 8;

BlockHasher MakeHasher() {
  return BlockHasher::FromSeed(HashAlgorithm::kXxhash, kDefaultHashSeed).value();
}

WorkloadRequest Turn(std::vector<uint64_t> blocks, int64_t tail, int64_t output,
                     int64_t next = kNoRequest) {
  WorkloadRequest request;
  request.prompt_tokens = kPromptBlock * std::ssize(blocks) + tail;
  request.output_tokens = output;
  request.blocks = std::move(blocks);
  request.next = next;
  return request;
}

// The last request continues the first request. The second request has the first two blocks of the
// first request.
Slice ThreeRequests() {
  return {.block_tokens = kPromptBlock,
          .requests = {Turn({1, 2, 3}, 5, 6, 2), Turn({1, 2, 9}, 7, 20), Turn({1, 2, 3, 4}, 7, 3)}};
}

class PromptsOfUnit : public ::testing::TestWithParam<int64_t> {};

TEST_P(PromptsOfUnit, ChainsAreTheHashesOfTheTokens) {
  const Slice slice = ThreeRequests();
  const Prompts prompts(slice, GetParam(), MakeHasher());
  BlockHasher hasher = MakeHasher();
  for (size_t r = 0; r < slice.requests.size(); ++r) {
    const std::vector<TokenId> tokens = prompts.TokensOf(r);
    ASSERT_EQ(std::ssize(tokens), slice.requests[r].prompt_tokens);
    std::vector<Digest> chain;
    hasher.ExtendChain(tokens, GetParam(), {}, chain);
    EXPECT_EQ(prompts.ChainOf(r), chain) << "request " << r;
    std::vector<uint64_t> hashes;
    for (const Digest& digest : chain) hashes.push_back(digest.low64());
    EXPECT_EQ(prompts.HashesOf(r), hashes);
  }
}

TEST_P(PromptsOfUnit, EqualPrefixesHaveEqualNumbersWithoutGaps) {
  const Slice slice = ThreeRequests();
  const Prompts prompts(slice, GetParam(), MakeHasher());
  std::vector<bool> used(prompts.prefixes());
  for (size_t a = 0; a < 3; ++a) {
    for (const PrefixNumber prefix : prompts.PrefixesOf(a)) used.at(prefix) = true;
    for (size_t b = 0; b < 3; ++b) {
      const auto of_a = prompts.TokensOf(a);
      const auto of_b = prompts.TokensOf(b);
      const int64_t tokens = std::ranges::mismatch(of_a, of_b).in1 - of_a.begin();
      const auto prefixes_a = prompts.PrefixesOf(a);
      const auto prefixes_b = prompts.PrefixesOf(b);
      const int64_t prefixes =
          std::ranges::mismatch(prefixes_a, prefixes_b).in1 - prefixes_a.begin();
      EXPECT_EQ(prefixes, tokens / GetParam()) << a << " and " << b;
    }
  }
  EXPECT_THAT(used, ::testing::Each(true));
}

// The unit is equal to a block, smaller or larger.
INSTANTIATE_TEST_SUITE_P(Units, PromptsOfUnit, ::testing::Values(kPromptBlock, 2, 4, 16));

TEST(Prompts, TailAndAnswerAreTheTokensOfTheContinuation) {
  const Slice slice = ThreeRequests();
  const Prompts prompts(slice, kPromptBlock, MakeHasher());
  std::vector<TokenId> turn = prompts.TokensOf(0);
  const auto answer = prompts.AnswerOf(0);
  ASSERT_EQ(answer.size(), 6u);
  turn.insert(turn.end(), answer.begin(), answer.end());
  std::vector<TokenId> next = prompts.TokensOf(2);
  ASSERT_GE(next.size(), turn.size());
  next.resize(turn.size());
  EXPECT_EQ(turn, next);
}

TEST(Prompts, TailAndAnswerWithoutAContinuationAreUnique) {
  const Slice slice{.block_tokens = kPromptBlock, .requests = {Turn({1}, 5, 9), Turn({1}, 5, 9)}};
  const Prompts prompts(slice, kPromptBlock, MakeHasher());
  EXPECT_EQ(prompts.ChainOf(0), prompts.ChainOf(1));
  EXPECT_NE(prompts.TokensOf(0), prompts.TokensOf(1));
  EXPECT_NE(prompts.AnswerOf(0), prompts.AnswerOf(1));
}

TEST(Prompts, ShortPromptHasNoPrefix) {
  const Slice slice{.block_tokens = kPromptBlock, .requests = {Turn({}, 1, 1)}};
  const Prompts prompts(slice, kPromptBlock, MakeHasher());
  EXPECT_EQ(prompts.prefixes(), 0u);
  EXPECT_TRUE(prompts.ChainOf(0).empty());
  EXPECT_EQ(prompts.TokensOf(0).size(), 1u);
}

}  // namespace
}  // namespace kvcast::simulate
