// The content key of a block depends on tokens, LoRA, salt, multimodal items and embeddings. If
// the events do not determine the content of a block, a query by content does not find the block.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/content_events.h"

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

TEST(ContentNamingContent, TheSaltOfTheFirstBlockSeparatesAllBlocks) {
  ContentWorker worker;
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)),
                             {ExtraKeys{ExtraKey::Text("tenant")}, std::nullopt}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithSalt("tenant")), 8);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithSalt("other")), 0);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
}

TEST(ContentNamingContent, SglangSendsTheSaltBesideTheBlocks) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.metadata.emplace().emplace_back("cache_salt", ExtraKey::Text("tenant"));
  worker.Apply(store);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithSalt("tenant")), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(ContentNamingContent, ALoraNameIsNotASalt) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.lora_id = 7;
  store.lora_name = "adapter";
  worker.Apply(WithExtraKeys(store, {ExtraKeys{ExtraKey::Text("adapter")}}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithLora("adapter")), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithSalt("adapter")), 0);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(ContentNamingContent, ALoraWithoutANameIsHidden) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.lora_id = 7;
  worker.Apply(store);
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kHiddenContent), 1u);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kUnknownParent), 1u)
      << "the block behind the hidden block";
}

TEST(ContentNamingContent, AnItemChangesTheContentFromItsFirstToken) {
  ContentWorker worker;
  const ExtraKeys begins{ExtraKey::Item("cat", 2)};
  const ExtraKeys goes_on{ExtraKey::Item("cat", -2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2), Hash(3)}, Tokens(1, 12)),
                             {std::nullopt, begins, goes_on}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12), WithItems({{"cat", 6, 4}})), 12);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12), WithItems({{"dog", 6, 4}})), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12), WithItems({{"cat", 5, 4}})), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 4);
}

// If output tokens complete a block with several items, vLLM hashes the block with the last item
// alone.
TEST(ContentNamingContent, SeveralItemsThatEndInABlockAreHidden) {
  ContentWorker worker;
  const ExtraKeys two{ExtraKey::Item("a", 0), ExtraKey::Item("b", 2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1)}, Tokens(1, 4)), {two}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), WithItems({{"a", 0, 1}, {"b", 2, 1}})), 0);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kHiddenContent), 1u);
}

TEST(ContentNamingContent, SeveralItemsAreNotHiddenIfTheLastItemContinues) {
  ContentWorker worker;
  const ExtraKeys two{ExtraKey::Item("a", 0), ExtraKey::Item("b", 2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)),
                             {two, ExtraKeys{ExtraKey::Item("b", -2)}}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithItems({{"a", 0, 1}, {"b", 2, 4}})), 8);
}

TEST(ContentNamingContent, AnotherGroupMayNameContentThatOneGroupHides) {
  ContentWorker worker({Full(8), Full(4)});
  const ExtraKeys coarse{ExtraKey::Item("a", 0), ExtraKey::Item("b", 2)};
  worker.Apply(WithExtraKeys(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 0, 8), {coarse}));
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kHiddenContent), 1u);
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8), std::nullopt, 1, 4),
                             {coarse, ExtraKeys{ExtraKey::Item("b", -2)}}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), WithItems({{"a", 0, 1}, {"b", 2, 6}})), 8);
}

TEST(ContentNamingContent, UnknownExtraKeysAreHidden) {
  ContentWorker worker;
  worker.Apply(WithExtraKeys(StoreTokens({Hash(2)}, Tokens(11, 4)), {ExtraKeys{ExtraKey::Int(3)}}));
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kHiddenContent), 1u);
}

HashInputs WithDigests(std::vector<uint8_t> first_bytes) {
  HashInputs inputs;
  PromptEmbeddingDigests& digests = inputs.embedding_digests.emplace_back();
  digests.hash_block_size = 4;
  for (const uint8_t byte : first_bytes) digests.digests.emplace_back()[0] = byte;
  return inputs;
}
ExtraKeys DigestOf(char first_byte) {
  return ExtraKeys{ExtraKey::Binary(first_byte + std::string(31, '\0'))};
}

TEST(ContentNamingContent, EmbeddingsAreNamedByTheirDigests) {
  ContentWorker worker;
  worker.Apply(WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, {0, 0, 0, 0, 0, 0, 0, 0}),
                             {DigestOf('a'), DigestOf('b')}));
  const std::vector<TokenId> tokens(8, 0);
  EXPECT_EQ(worker.Reusable(tokens, WithDigests({'a', 'b'})), 8);
  EXPECT_EQ(worker.Reusable(tokens, WithDigests({'a', 'c'})), 4);
  EXPECT_EQ(worker.Reusable(tokens, WithDigests({'a'})), 4) << "the second digest is missing";
  EXPECT_EQ(worker.Reusable(tokens), 0);
}

// The digest of a larger block is not a digest of the query, which has one for each hash unit.
TEST(ContentNamingContent, EmbeddingsAreNamedByTheGroupOfTheHashSize) {
  ContentWorker worker({Full(4), Full(8)});
  const std::vector<TokenId> tokens(8, 0);
  worker.Apply(
      WithExtraKeys(StoreTokens({Hash(1), Hash(2)}, tokens), {DigestOf('a'), DigestOf('b')}));
  worker.Apply(WithExtraKeys(StoreTokens({Hash(2)}, tokens, std::nullopt, 1, 8), {DigestOf('c')}));
  EXPECT_EQ(worker.counters().ambiguous, 0u);
  EXPECT_EQ(worker.Reusable(tokens, WithDigests({'a', 'b'})), 8);
}

TEST(PromptContents, IsCutWhereContentCannotBeNamed) {
  const auto tokens = Tokens(1, 20);
  const auto names = [&](const HashInputs& inputs, int64_t lookahead = 0) {
    return PromptContents(ContentKeys::OfProcess(), tokens, 4, lookahead, inputs).size();
  };
  EXPECT_EQ(names({}), 5u);
  EXPECT_EQ(names({}, 1), 4u) << "no token follows the fifth block";
  EXPECT_EQ(names({}, 4), 4u);
  EXPECT_EQ(names({}, 21), 0u);
  EXPECT_EQ(names(WithItems({{"a", 9, 0}})), 0u) << "an empty item";
  EXPECT_EQ(names(WithItems({{"a", 8, 2}, {"b", 900, 1}, {"c", 0, 1}})), 0u)
      << "the last item is out of order";
  EXPECT_EQ(names(WithItems({{"a", 8, 2}, {"b", 900, 1}, {"c", 800, 1}})), 5u);
  EXPECT_EQ(names(WithItems({{"a", 12, 4}, {"b", 6, 1}})), 1u);
  EXPECT_EQ(names(WithItems({{"a", -1, 4}})), 0u);
  EXPECT_EQ(names(WithItems({{"a", 18, 40}})), 5u) << "an item that goes beyond the prompt";
  HashInputs embeddings;
  embeddings.prompt_embeddings = PromptEmbeddings{std::string(80, 'x'), 4};
  EXPECT_EQ(names(embeddings), 0u);
  HashInputs of_another_size = WithDigests({'a'});
  of_another_size.embedding_digests[0].hash_block_size = 8;
  EXPECT_EQ(names(of_another_size), 0u);
  HashInputs twice = WithDigests({'a', 'b'});
  twice.embedding_digests.push_back(WithDigests({'c', 'd', 'e'}).embedding_digests[0]);
  EXPECT_EQ(PromptContents(ContentKeys::OfProcess(), tokens, 4, 0, twice),
            PromptContents(ContentKeys::OfProcess(), tokens, 4, 0, WithDigests({'a', 'b'})))
      << "the hashes of the engine use the first digests of a size";
}

TEST(PromptContents, ContentsOfAPrefixDoNotDependOnTheUnit) {
  const auto tokens = Tokens(7, 48);
  for (const HashInputs& inputs : {WithSalt("s"), WithItems({{"a", 5, 9}, {"b", 30, 1}})}) {
    const auto fine = PromptContents(ContentKeys::OfProcess(), tokens, 4, 0, inputs);
    const auto coarse = PromptContents(ContentKeys::OfProcess(), tokens, 16, 0, inputs);
    ASSERT_EQ(coarse.size(), 3u);
    for (size_t i = 0; i < coarse.size(); ++i) EXPECT_EQ(coarse[i], fine[i * 4 + 3]);
  }
}

}  // namespace
}  // namespace kvcast::testing
