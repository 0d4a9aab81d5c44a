// The prompt of a challenge is determined by its nonce.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/hash/chain_challenge.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvcast {
namespace {

// Computed with Python, for the tokens 16 * i to 16 * i + 15:
//   message = b"kvcast challenge" + nonce.to_bytes(8, "big") + i.to_bytes(8, "big")
//   d = hashlib.sha256(message).digest()
//   [int.from_bytes(d[2 * j:2 * j + 2], "big") for j in range(16)]
TEST(ChainChallenge, TokensAreDigestsOfTheNonce) {
  const auto tokens = ChallengeTokens(0x0123456789abcdef, 18);
  const std::vector<TokenId> head(tokens.begin(), tokens.begin() + 4);
  const std::vector<TokenId> second(tokens.begin() + 16, tokens.end());
  EXPECT_EQ(head, (std::vector<TokenId>{6393, 55625, 40599, 62939}));
  EXPECT_EQ(second, (std::vector<TokenId>{14627, 24580}));
}

TEST(ChainChallenge, AShorterPromptIsAPrefix) {
  const auto tokens = ChallengeTokens(7, 100);
  ASSERT_EQ(tokens.size(), 100u);
  for (const size_t count : {0u, 1u, 15u, 16u, 17u, 99u}) {
    const auto shorter = ChallengeTokens(7, count);
    ASSERT_EQ(shorter.size(), count);
    EXPECT_TRUE(std::ranges::equal(shorter, std::span(tokens).first(count)));
  }
  EXPECT_TRUE(std::ranges::all_of(tokens, [](TokenId id) { return id >= 0 && id < 1 << 16; }));
}

TEST(ChainChallenge, AnotherNonceGivesAnotherPrompt) {
  EXPECT_NE(ChallengeTokens(1, 16), ChallengeTokens(2, 16));
  EXPECT_NE(ChallengeTokens(1, 16), ChallengeTokens(uint64_t{1} << 63, 16));
  EXPECT_EQ(ChallengeText(0x0123456789abcdef), "challenge-0123456789abcdef");
  EXPECT_EQ(ChallengeText(0), "challenge-0000000000000000");
}

}  // namespace
}  // namespace kvcast
