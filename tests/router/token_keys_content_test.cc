// Token mode: content is more than tokens. LoRA, salt and multimodal items enter the key; what
// cannot be told is not promised.
// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "tests/router/token_events.h"

namespace kvcast::testing {
namespace {

HashInputs WithSalt(std::string salt) {
  HashInputs inputs;
  inputs.cache_salt = std::move(salt);
  return inputs;
}
HashInputs WithLora(std::string name) {
  HashInputs inputs;
  inputs.lora_name = std::move(name);
  return inputs;
}
HashInputs WithItems(std::vector<MultimodalItem> items) {
  HashInputs inputs;
  inputs.mm_items = std::move(items);
  return inputs;
}

TEST(TokenKeysContent, TheSaltOfTheFirstBlockSeparatesAllBlocks) {
  TokenModeWorker worker;
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)),
                             {ExtraKeys{ExtraKey::Text("tenant")}, std::nullopt}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithSalt("tenant")), 8);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithSalt("other")), 0);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
}

TEST(TokenKeysContent, SglangSendsTheSaltBesideTheBlocks) {
  TokenModeWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.metadata.emplace().emplace_back("cache_salt", ExtraKey::Text("tenant"));
  worker.Apply(store);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithSalt("tenant")), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(TokenKeysContent, ALoraNameIsNotASalt) {
  TokenModeWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.lora_id = 7;
  store.lora_name = "adapter";
  worker.Apply(WithExtraKeys(store, {ExtraKeys{ExtraKey::Text("adapter")}}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithLora("adapter")), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithSalt("adapter")), 0);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(TokenKeysContent, ALoraWithoutANameIsHidden) {
  TokenModeWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.lora_id = 7;
  worker.Apply(store);
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.unresolved(Unresolved::kHiddenContent), 2u);
}

TEST(TokenKeysContent, AnItemCountsFromWhereItBegins) {
  TokenModeWorker worker;
  const ExtraKeys begins{ExtraKey::Item("cat", 2)};
  const ExtraKeys goes_on{ExtraKey::Item("cat", -2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2), Hash(3)}, Tokens(1, 12)),
                             {std::nullopt, begins, goes_on}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12), WithItems({{"cat", 6, 4}})), 12);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12), WithItems({{"dog", 6, 4}})), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12), WithItems({{"cat", 5, 4}})), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 4);
}

// vLLM hashes a block that output tokens complete with the last of several items alone.
TEST(TokenKeysContent, SeveralItemsThatEndInABlockAreHidden) {
  TokenModeWorker worker;
  const ExtraKeys two{ExtraKey::Item("a", 0), ExtraKey::Item("b", 2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1)}, Tokens(1, 4)), {two}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithItems({{"a", 0, 1}, {"b", 2, 1}})), 0);
  EXPECT_EQ(worker.unresolved(Unresolved::kHiddenContent), 1u);
}

TEST(TokenKeysContent, SeveralItemsOfWhichTheLastGoesOnAreNot) {
  TokenModeWorker worker;
  const ExtraKeys two{ExtraKey::Item("a", 0), ExtraKey::Item("b", 2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)),
                             {two, ExtraKeys{ExtraKey::Item("b", -2)}}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithItems({{"a", 0, 1}, {"b", 2, 4}})), 8);
}

TEST(TokenKeysContent, WhatOneGroupHidesAnotherMayShow) {
  TokenModeWorker worker({}, {Full(8), Full(4)});
  const ExtraKeys coarse{ExtraKey::Item("a", 0), ExtraKey::Item("b", 2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 0, 8), {coarse}));
  EXPECT_EQ(worker.unresolved(Unresolved::kHiddenContent), 1u);
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8), std::nullopt, 1, 4),
                             {coarse, ExtraKeys{ExtraKey::Item("b", -2)}}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithItems({{"a", 0, 1}, {"b", 2, 6}})), 8);
}

TEST(TokenKeysContent, EmbeddingsAndUnknownExtraKeysAreHidden) {
  TokenModeWorker worker;
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1)}, Tokens(1, 4)),
                             {ExtraKeys{ExtraKey::Binary(std::string(32, 'd'))}}));
  worker.Apply(WithExtraKeys(StoreTokens({Hash(2)}, Tokens(11, 4)), {ExtraKeys{ExtraKey::Int(3)}}));
  EXPECT_EQ(worker.unresolved(Unresolved::kHiddenContent), 2u);
}

TEST(ContentChain, IsCutWhereContentCannotBeNamed) {
  const auto tokens = Tokens(1, 20);
  EXPECT_EQ(ContentChain(tokens, 4, {}).size(), 5u);
  EXPECT_EQ(ContentChain(tokens, 4, {}, 2).size(), 4u) << "19 pairs";
  EXPECT_EQ(ContentChain(tokens, 4, WithItems({{"a", 9, 0}})).size(), 2u) << "an empty item";
  EXPECT_EQ(ContentChain(tokens, 4, WithItems({{"a", 12, 4}, {"b", 6, 1}})).size(), 1u);
  EXPECT_EQ(ContentChain(tokens, 4, WithItems({{"a", -1, 4}})).size(), 0u);
  EXPECT_EQ(ContentChain(tokens, 4, WithItems({{"a", 18, 40}})).size(), 5u) << "a cut prompt";
  HashInputs embeddings;
  embeddings.prompt_embeddings = PromptEmbeddings{std::string(80, 'x'), 4};
  EXPECT_TRUE(ContentChain(tokens, 4, embeddings).empty());
}

TEST(ContentChain, KeysOfAPrefixDoNotDependOnTheUnit) {
  const auto tokens = Tokens(7, 48);
  const auto fine = ContentChain(tokens, 4, WithSalt("s"));
  const auto coarse = ContentChain(tokens, 16, WithSalt("s"));
  for (size_t i = 0; i < coarse.size(); ++i) EXPECT_EQ(coarse[i], fine[i * 4 + 3]);
}

TEST(ContentChain, SmallDifferencesGiveDifferentKeys) {
  std::set<uint64_t> keys;
  size_t expected = 0;
  for (TokenId a = 0; a < 300; ++a) {
    for (TokenId b = 0; b < 300; ++b) {
      for (const BlockHash& key : ContentChain(std::vector<TokenId>{a, b}, 2, {})) {
        keys.insert(key.integer());
      }
      ++expected;
    }
  }
  EXPECT_EQ(keys.size(), expected);
}

TEST(ContentChain, APairIsOrdered) {
  const std::vector<TokenId> forth = {1, 2, 1, 2};
  const std::vector<TokenId> back = {2, 1, 2, 1};
  EXPECT_NE(ContentChain(forth, 1, {}, 2)[0], ContentChain(back, 1, {}, 2)[0]);
}

}  // namespace
}  // namespace kvcast::testing
