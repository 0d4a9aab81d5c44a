// The extra keys of a block contain the items that overlap the block, in order. The cursor advances
// past items that have ended.
// SPDX-License-Identifier: Apache-2.0
#include "src/hash/extra_keys.h"

#include <gmock/gmock.h>

#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

using internal::BlockKeys;
using internal::CollectBlockKeys;

// Returns the keys of [begin, end), starting with item `cursor`. Checks the position of the cursor
// afterwards.
ExtraKeys KeysFrom(const HashInputs& inputs, int64_t begin, int64_t end, size_t cursor,
                   size_t next_cursor) {
  BlockKeys block;
  CollectBlockKeys(inputs, {begin, end}, ExtraKeyScheme::kBare, cursor, block);
  EXPECT_EQ(cursor, next_cursor);
  return block.keys;
}

HashInputs Images(std::vector<MultimodalItem> items) {
  HashInputs inputs;
  inputs.mm_items = std::move(items);
  return inputs;
}

// Item h1 covers the positions [0, 5), item h2 the positions [10, 15). The last argument of
// KeysFrom is the expected cursor.
TEST(ExtraKeys, ItemsAt0Plus5And10Plus5) {
  const HashInputs inputs = Images({{"h1", 0, 5}, {"h2", 10, 5}});
  EXPECT_EQ(KeysFrom(inputs, 0, 5, 0, 1), (ExtraKeys{ExtraKey::Item("h1", 0)}));
  EXPECT_EQ(KeysFrom(inputs, 3, 8, 0, 1), (ExtraKeys{ExtraKey::Item("h1", -3)}));
  EXPECT_EQ(KeysFrom(inputs, 6, 10, 0, 1), ExtraKeys{});
  EXPECT_EQ(KeysFrom(inputs, 0, 15, 0, 2),
            (ExtraKeys{ExtraKey::Item("h1", 0), ExtraKey::Item("h2", 10)}));
}

// The keys of [0, 5) are (h1, 0) and "salt". The salt is a key only if the block starts at 0.
TEST(ExtraKeys, SaltAndImage) {
  HashInputs inputs = Images({{"h1", 0, 5}});
  inputs.cache_salt = "salt";
  EXPECT_EQ(ExtraKeysFor(inputs, 0, 5),
            (ExtraKeys{ExtraKey::Item("h1", 0), ExtraKey::Text("salt")}));
}

TEST(ExtraKeys, SaltOnlyWhenTheBlockStartsAt0) {
  HashInputs inputs;
  inputs.cache_salt = "salt1";
  EXPECT_EQ(ExtraKeysFor(inputs, 0, 16), ExtraKeys{ExtraKey::Text("salt1")});
  EXPECT_EQ(ExtraKeysFor(inputs, 16, 32), ExtraKeys{});
}

TEST(ExtraKeys, LoraNameInEveryBlock) {
  HashInputs inputs;
  inputs.lora_name = "name";
  EXPECT_EQ(ExtraKeysFor(inputs, 0, 16), ExtraKeys{ExtraKey::Text("name")});
  EXPECT_EQ(ExtraKeysFor(inputs, 160, 176), ExtraKeys{ExtraKey::Text("name")});
}

TEST(ExtraKeys, OrderIsLoraImagesSaltEmbeddings) {
  HashInputs inputs = Images({{"h1", 2, 3}});
  inputs.lora_name = "lora";
  inputs.cache_salt = "salt";
  inputs.prompt_embeddings = PromptEmbeddings{std::string(64, '\0'), 4};
  const ExtraKeys keys = ExtraKeysFor(inputs, 0, 16);
  ASSERT_EQ(keys.size(), 4u);
  EXPECT_EQ(keys[0], ExtraKey::Text("lora"));
  EXPECT_EQ(keys[1], ExtraKey::Item("h1", 2));
  EXPECT_EQ(keys[2], ExtraKey::Text("salt"));
  EXPECT_TRUE(std::holds_alternative<Bytes>(keys[3].value));
}

TEST(ExtraKeys, ImagesAt11Plus10And30Plus18And48Plus7) {
  const HashInputs inputs = Images({{"aaa", 11, 10}, {"bbb", 30, 18}, {"ccc", 48, 7}});
  EXPECT_EQ(ExtraKeysFor(inputs, 0, 16), ExtraKeys{ExtraKey::Item("aaa", 11)});
  EXPECT_EQ(ExtraKeysFor(inputs, 16, 32),
            (ExtraKeys{ExtraKey::Item("aaa", -5), ExtraKey::Item("bbb", 14)}));
  EXPECT_EQ(ExtraKeysFor(inputs, 32, 48), ExtraKeys{ExtraKey::Item("bbb", -2)});
  EXPECT_EQ(ExtraKeysFor(inputs, 48, 64), ExtraKeys{ExtraKey::Item("ccc", 0)});
  EXPECT_EQ(ExtraKeysFor(inputs, 64, 80), ExtraKeys{});
}

TEST(ExtraKeys, CursorAtTheLastItemSkipsTheOthers) {
  const HashInputs inputs = Images({{"h1", 16, 1}, {"h2", 18, 1}});
  EXPECT_EQ(KeysFrom(inputs, 16, 32, 1, 2), ExtraKeys{ExtraKey::Item("h2", 2)});
}

TEST(ExtraKeys, NothingOnceTheLastItemHasEnded) {
  // The engine checks only the last item, even if an earlier item ends later.
  const HashInputs inputs = Images({{"long", 0, 100}, {"last", 14, 2}});
  EXPECT_EQ(ExtraKeysFor(inputs, 16, 32), ExtraKeys{});
}

TEST(ExtraKeys, AnItemThatGoesOnHidesTheItemsAfterIt) {
  const HashInputs inputs = Images({{"long", 0, 40}, {"inside", 20, 2}});
  EXPECT_EQ(ExtraKeysFor(inputs, 16, 32), ExtraKeys{ExtraKey::Item("long", -16)});
}

TEST(ExtraKeys, EmbeddingDigestIsSha256OfTheRows) {
  HashInputs inputs;
  inputs.prompt_embeddings = PromptEmbeddings{"abcdef", 3};
  // SHA-256 of "abc".
  const ExtraKeys first = ExtraKeysFor(inputs, 0, 1);
  EXPECT_EQ(ToHex(std::get<Bytes>(first.at(0).value).data),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // SHA-256 of no bytes, for positions past the last row.
  const ExtraKeys past = ExtraKeysFor(inputs, 2, 4);
  EXPECT_EQ(ToHex(std::get<Bytes>(past.at(0).value).data),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(ExtraKeys, OffsetsThatNoPromptHasAreSafe) {
  const HashInputs inputs =
      Images({{"low", INT64_MIN, 5}, {"wide", 1, INT64_MAX}, {"high", INT64_MAX, INT64_MAX}});
  EXPECT_EQ(ExtraKeysFor(inputs, 16, 32), ExtraKeys{ExtraKey::Item("wide", -15)});
  HashInputs embeddings;
  embeddings.prompt_embeddings = PromptEmbeddings{"abc", 0};
  EXPECT_EQ(ExtraKeysFor(embeddings, 0, 16).size(), 1u);
}

ExtraKey List(std::vector<ExtraKey> items) { return {ExtraKeyList{std::move(items)}}; }

TEST(ExtraKeys, TaggedFormNamesTheSourceOfEachKey) {
  HashInputs inputs = Images({{"h1", 0, 5}, {"h2", 10, 5}});
  inputs.lora_name = "sql";
  inputs.lora_path = "/adapters/sql";
  inputs.cache_salt = "salt";
  inputs.embedding_digests = {{16, {std::array<uint8_t, 32>{}}}};
  const ExtraKeys keys = ExtraKeysFor(inputs, 0, 16, {ExtraKeyScheme::kTagged, 0});
  EXPECT_EQ(
      keys,
      (ExtraKeys{
          List({ExtraKey::Text("lora"), ExtraKey::Text("sql"), ExtraKey::Text("/adapters/sql")}),
          List({ExtraKey::Text("mm"), ExtraKey::Text("h1"), ExtraKey::Int(0)}),
          List({ExtraKey::Text("mm"), ExtraKey::Text("h2"), ExtraKey::Int(10)}),
          List({ExtraKey::Text("cache_salt"), ExtraKey::Text("salt")}),
          List({ExtraKey::Text("prompt_embeds"), ExtraKey::Binary(std::string(32, '\0'))}),
      }));
}

// If only the lookahead tokens of a block reach an item, the item is also a key of the next block.
TEST(ExtraKeys, LookaheadReachesItemsOfTheNextBlock) {
  const HashInputs inputs = Images({{"h1", 12, 2}, {"h2", 16, 2}, {"h3", 18, 2}, {"h4", 40, 2}});
  BlockKeys block;
  size_t cursor = 0;
  const auto collect = [&](int64_t begin, int64_t lookahead) {
    CollectBlockKeys(inputs, {begin, begin + 16, lookahead}, ExtraKeyScheme::kBare, cursor, block);
    return block.keys;
  };
  EXPECT_EQ(collect(0, 4), (ExtraKeys{ExtraKey::Item("h1", 12), ExtraKey::Item("h2", 16),
                                      ExtraKey::Item("h3", 18)}));
  EXPECT_EQ(cursor, 1u);
  EXPECT_EQ(collect(16, 4), (ExtraKeys{ExtraKey::Item("h2", 0), ExtraKey::Item("h3", 2)}));
  EXPECT_EQ(cursor, 3u);
  EXPECT_EQ(collect(32, 4), (ExtraKeys{ExtraKey::Item("h4", 8)}));
  EXPECT_EQ(cursor, 4u);
  cursor = 0;
  EXPECT_EQ(collect(0, 0), (ExtraKeys{ExtraKey::Item("h1", 12)}));
}

TEST(ExtraKeys, ObjectTagsStandNextToTheirKeys) {
  HashInputs inputs = Images({{"h1", 0, 2, 7}, {"h1", 4, 2, 7}});
  inputs.lora_name = "lora";
  size_t cursor = 0;
  BlockKeys block;
  CollectBlockKeys(inputs, {0, 16}, ExtraKeyScheme::kBare, cursor, block);
  EXPECT_THAT(block.object_tags, ::testing::ElementsAre(0, 7, 7));
}

}  // namespace
}  // namespace kvcast::testing
