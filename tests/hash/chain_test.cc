// The chain of a prompt: which units it covers, how it grows, and that the fast path for shared
// keys writes what the definition writes.
// SPDX-License-Identifier: Apache-2.0
#include "src/hash/extra_keys.h"
#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

// The chain by the definition: one HashBlock per unit.
std::vector<Digest> ByDefinition(BlockHasher& hasher, std::span<const TokenId> tokens, size_t unit,
                                 const HashInputs& inputs) {
  std::vector<Digest> chain;
  for (size_t begin = 0; begin + unit <= tokens.size(); begin += unit) {
    const auto first = static_cast<int64_t>(begin);
    size_t cursor = 0;
    internal::BlockKeys block;
    internal::CollectBlockKeys(inputs, first, first + static_cast<int64_t>(unit), cursor, block);
    const Digest* parent = chain.empty() ? nullptr : &chain.back();
    const Digest digest =
        hasher.HashBlock(parent, tokens.subspan(begin, unit), block.keys, block.object_tags);
    chain.push_back(digest);
  }
  return chain;
}

std::vector<TokenId> TokensOfEveryWidth(size_t count) {
  constexpr TokenId kEdges[] = {0,         23,     24,          255,         256,        65535,
                                65536,     151935, 2147483647,  2147483648,  4294967295, 4294967296,
                                INT64_MAX, -1,     -2147483648, -2147483649, INT64_MIN};
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = kEdges[(i * 5 + i / 17) % std::size(kEdges)];
  return tokens;
}

HashInputs Everything() {
  HashInputs inputs;
  inputs.lora_name = "a LoRA name that is longer than a short string";
  inputs.cache_salt = "salt";
  inputs.mm_items = {{"img", 3, 4, 1}, {"img", 9, 30, 1}, {"other", 60, 2}};
  return inputs;
}

TEST(Chain, EqualsTheDefinitionForEveryBlockSizeAndKindOfInput) {
  const std::vector<TokenId> tokens = TokensOfEveryWidth(200);
  HashInputs lora;
  lora.lora_name = "lora";
  HashInputs salt;
  salt.cache_salt = "s";
  for (const HashAlgorithm algorithm : kAllAlgorithms) {
    BlockHasher hasher = MakeHasher(algorithm);
    for (const size_t unit : {1, 2, 3, 4, 5, 15, 16, 17, 64, 200}) {
      // Plain prompts last: the keys of the prompt before must not stick.
      for (const HashInputs& inputs : {Everything(), lora, salt, HashInputs{}}) {
        EXPECT_EQ(Chain(hasher, tokens, static_cast<int64_t>(unit), inputs),
                  ByDefinition(hasher, tokens, unit, inputs))
            << HashAlgorithmName(algorithm) << " unit " << unit;
      }
    }
  }
}

TEST(Chain, EqualsTheDefinitionWhereAPickleHasSeveralFrames) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kXxhash);
  for (const size_t unit : {5900, 5960, 6600, 13100, 13120, 40000}) {
    const std::vector<TokenId> tokens = TokenRange(100000, 2 * unit);
    EXPECT_EQ(Chain(hasher, tokens, static_cast<int64_t>(unit)),
              ByDefinition(hasher, tokens, unit, {}))
        << unit;
  }
}

TEST(Chain, CoversCompleteUnitsOnly) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  EXPECT_EQ(Chain(hasher, TokenRange(0, 0), 16).size(), 0u);
  EXPECT_EQ(Chain(hasher, TokenRange(0, 15), 16).size(), 0u);
  EXPECT_EQ(Chain(hasher, TokenRange(0, 17), 16).size(), 1u);
  EXPECT_EQ(Chain(hasher, TokenRange(0, 32), 16).size(), 2u);
}

TEST(Chain, GrowsByTheUnitsItDoesNotHoldYet) {
  const std::vector<TokenId> tokens = TokenRange(0, 100);
  HashInputs inputs;
  inputs.lora_name = "lora";
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256Cbor);
  std::vector<Digest> chain;
  for (size_t count = 0; count <= tokens.size(); count += 7) {
    hasher.ExtendChain(std::span(tokens).first(count), 16, inputs, chain);
    EXPECT_EQ(chain.size(), count / 16);
  }
  EXPECT_EQ(chain, Chain(hasher, std::span(tokens).first(98), 16, inputs));
}

TEST(Chain, IsLeftAloneIfItReachesFurtherThanTheTokens) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  std::vector<Digest> chain = Chain(hasher, TokenRange(0, 64), 16);
  const std::vector<Digest> before = chain;
  hasher.ExtendChain(TokenRange(0, 32), 16, {}, chain);
  EXPECT_EQ(chain, before);
}

TEST(Chain, ContinuedByOutputTokensLooksAtTheLastItemOnly) {
  const std::vector<TokenId> tokens = TokenRange(0, 32);
  HashInputs inputs;
  inputs.mm_items = {{"h1", 16, 1}, {"h2", 18, 1}};
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  std::vector<Digest> continued = Chain(hasher, std::span(tokens).first(20), 16, inputs);
  hasher.ExtendChain(tokens, 16, inputs, continued);
  ASSERT_EQ(continued.size(), 2u);
  EXPECT_EQ(continued[1], hasher.HashBlock(&continued[0], std::span(tokens).subspan(16),
                                           {ExtraKey::Item("h2", 2)}));
  EXPECT_NE(continued[1], Chain(hasher, tokens, 16, inputs)[1]);
}

TEST(Chain, OtherSaltOtherHashesEverywhere) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  HashInputs salt1;
  salt1.cache_salt = "salt1";
  HashInputs salt2;
  salt2.cache_salt = "salt2";
  const std::vector<Digest> chain1 = Chain(hasher, TokenRange(0, 48), 16, salt1);
  const std::vector<Digest> chain2 = Chain(hasher, TokenRange(0, 48), 16, salt2);
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(chain1[i], chain2[i]);
}

TEST(Chain, SameObjectHashesUnlikeEqualTextUnderPickleOnly) {
  HashInputs one_object;
  one_object.mm_items = {{"img-B", 0, 4, 1}, {"img-B", 6, 4, 1}};
  HashInputs equal_text;
  equal_text.mm_items = {{"img-B", 0, 4}, {"img-B", 6, 4}};
  for (const HashAlgorithm algorithm : kAllAlgorithms) {
    BlockHasher hasher = MakeHasher(algorithm);
    const bool pickle = algorithm == HashAlgorithm::kSha256 || algorithm == HashAlgorithm::kXxhash;
    EXPECT_EQ(Chain(hasher, TokenRange(0, 16), 16, one_object) !=
                  Chain(hasher, TokenRange(0, 16), 16, equal_text),
              pickle);
  }
}

}  // namespace
}  // namespace kvcast::testing
