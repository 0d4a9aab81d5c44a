// A chain covers the whole hash units of a prompt and grows with the prompt. The fast path for
// shared keys gives the digests of the definition.
// SPDX-License-Identifier: Apache-2.0
#include "src/hash/extra_keys.h"
#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

// The chain by definition: one HashBlock per hash unit.
std::vector<Digest> ByDefinition(BlockHasher& hasher, std::span<const TokenId> tokens,
                                 size_t hash_block_size, const HashInputs& inputs,
                                 const ChainForm& form = {}) {
  std::vector<Digest> chain;
  const auto ahead = static_cast<size_t>(form.lookahead);
  for (size_t begin = 0; begin + hash_block_size + ahead <= tokens.size();
       begin += hash_block_size) {
    const auto first = static_cast<int64_t>(begin);
    size_t cursor = 0;
    internal::BlockKeys block;
    internal::CollectBlockKeys(
        inputs, {first, first + static_cast<int64_t>(hash_block_size), form.lookahead},
        form.extra_keys, cursor, block);
    const Digest* parent = chain.empty() ? nullptr : &chain.back();
    const Digest digest = hasher.HashBlock(
        parent, tokens.subspan(begin, hash_block_size), block.keys, block.object_tags,
        {form.extra_keys, tokens.subspan(begin + hash_block_size, ahead)});
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

constexpr ChainForm kForms[] = {{},
                                {ExtraKeyScheme::kTagged, 0},
                                {ExtraKeyScheme::kBare, 1},
                                {ExtraKeyScheme::kTagged, 1},
                                {ExtraKeyScheme::kTagged, 2},
                                {ExtraKeyScheme::kTagged, kMaxHashLookahead}};

HashInputs Everything() {
  HashInputs inputs;
  inputs.lora_name = "a LoRA name that is longer than a short string";
  inputs.lora_path = "/adapters/a";
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
    for (const size_t hash_block_size : {1, 2, 3, 4, 5, 15, 16, 17, 64, 200}) {
      // Plain prompts come last: the hasher must not keep the keys of the previous prompt.
      for (const HashInputs& inputs : {Everything(), lora, salt, HashInputs{}}) {
        for (const ChainForm& form : kForms) {
          std::vector<Digest> chain;
          hasher.ExtendChain(tokens, static_cast<int64_t>(hash_block_size), inputs, chain, form);
          EXPECT_EQ(chain, ByDefinition(hasher, tokens, hash_block_size, inputs, form))
              << HashAlgorithmName(algorithm) << " unit " << hash_block_size << " "
              << ExtraKeySchemeName(form.extra_keys) << " lookahead " << form.lookahead;
        }
      }
    }
  }
}

// The hasher must not keep the adapter path of the previous prompt.
TEST(Chain, AnAdapterIsItsNameAndUnderTaggedKeysItsPath) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  const auto chain = [&hasher](std::string path, ExtraKeyScheme scheme) {
    HashInputs inputs;
    inputs.lora_name = "sql";
    inputs.lora_path = std::move(path);
    std::vector<Digest> digests;
    hasher.ExtendChain(TokenRange(0, 32), 16, inputs, digests, {.extra_keys = scheme});
    return digests;
  };
  EXPECT_NE(chain("/a", ExtraKeyScheme::kTagged), chain("/b", ExtraKeyScheme::kTagged));
  EXPECT_NE(chain("/b", ExtraKeyScheme::kTagged), chain("/b", ExtraKeyScheme::kBare));
  EXPECT_EQ(chain("/a", ExtraKeyScheme::kBare), chain("/b", ExtraKeyScheme::kBare));
}

TEST(Chain, LookaheadNeedsTheTokensBehindABlock) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kXxhash);
  const auto units = [&hasher](size_t tokens, int64_t lookahead) {
    std::vector<Digest> chain;
    hasher.ExtendChain(TokenRange(0, tokens), 16, {}, chain, {.lookahead = lookahead});
    EXPECT_EQ(std::ssize(chain), HashedUnits(static_cast<int64_t>(tokens), 16, lookahead));
    return chain.size();
  };
  EXPECT_EQ(units(0, 3), 0u);
  EXPECT_EQ(units(2, 3), 0u);
  EXPECT_EQ(units(16, 1), 0u);
  EXPECT_EQ(units(17, 1), 1u);
  EXPECT_EQ(units(18, 3), 0u);
  EXPECT_EQ(units(19, 3), 1u);
  EXPECT_EQ(units(40, kMaxHashLookahead), 2u);
}

TEST(Chain, TokenBehindABlockIsPartOfItsHashAlone) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kXxhashCbor);
  const auto chain = [&hasher](TokenId last) {
    std::vector<TokenId> tokens = TokenRange(0, 33);
    tokens.back() = last;
    std::vector<Digest> digests;
    hasher.ExtendChain(tokens, 16, {}, digests, {.lookahead = 1});
    return digests;
  };
  EXPECT_EQ(chain(7)[0], chain(8)[0]);
  EXPECT_NE(chain(7)[1], chain(8)[1]);
}

// With embedding digests instead of rows, the chain has the same digests, and ends where the given
// digests end.
TEST(Chain, EmbeddingDigestsStandForTheRows) {
  const std::vector<TokenId> tokens(67, 0);
  HashInputs rows;
  rows.cache_salt = "s";
  rows.prompt_embeddings = PromptEmbeddings{std::string(67 * 2, 'e'), 2};
  rows.prompt_embeddings->data[40] = 'x';
  for (const ChainForm& form : kForms) {
    HashInputs digests;
    digests.cache_salt = "s";
    digests.embedding_digests = {{8, {}}, {16, {}}};
    for (const int64_t begin : {0, 16, 32}) {
      const ExtraKeys keys = ExtraKeysFor(rows, begin, begin + 16, {.lookahead = form.lookahead});
      const auto& digest = std::get<Bytes>(keys.back().value).data;
      auto& given = digests.embedding_digests[1].digests.emplace_back();
      std::copy(digest.begin(), digest.end(), given.begin());
    }
    BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
    std::vector<Digest> by_rows;
    hasher.ExtendChain(tokens, 16, rows, by_rows, form);
    ASSERT_EQ(by_rows.size(), form.lookahead > 3 ? 3u : 4u);
    by_rows.resize(3);
    std::vector<Digest> by_digests;
    hasher.ExtendChain(tokens, 16, digests, by_digests, form);
    EXPECT_EQ(by_digests, by_rows);
    // The test gives no digests for a hash_block_size of 32.
    by_digests.clear();
    hasher.ExtendChain(tokens, 32, digests, by_digests, form);
    EXPECT_TRUE(by_digests.empty());
  }
}

TEST(Chain, EqualsTheDefinitionWhereAPickleHasSeveralFrames) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kXxhash);
  for (const size_t hash_block_size : {5900, 5960, 6600, 13100, 13120, 40000}) {
    const std::vector<TokenId> tokens = TokenRange(100000, 2 * hash_block_size);
    EXPECT_EQ(Chain(hasher, tokens, static_cast<int64_t>(hash_block_size)),
              ByDefinition(hasher, tokens, hash_block_size, {}))
        << hash_block_size;
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

TEST(Chain, IsUnchangedIfItCoversMoreThanTheTokens) {
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

TEST(Chain, AnotherSaltChangesEveryHash) {
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
