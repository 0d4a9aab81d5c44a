// The index learns the content of an engine hash from token ids and parents.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

TEST(ContentNamingLearning, AStoreAtTheRootIsReusableForItsTokens) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(900), Hash(17)}, Tokens(1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  EXPECT_EQ(worker.Reusable(Tokens(1, 7)), 4);
  EXPECT_EQ(worker.Reusable(Tokens(2, 8)), 0);
}

TEST(ContentNamingLearning, ABlockHasTheNameThatItsPromptGives) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(900), Hash(17)}, Tokens(1, 8)));
  const auto contents = PromptContents(worker.index().keys(), Tokens(1, 8), 4, 0, {});
  EXPECT_EQ(worker.ContentOf(Hash(900)), contents[0]);
  EXPECT_EQ(worker.ContentOf(Hash(17)), contents[1]);
  EXPECT_EQ(worker.ContentOf(Hash(18)), kUnnamed);
}

TEST(ContentNamingLearning, AStoreContinuesItsParentsContent) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(900)}, Tokens(1, 4)));
  worker.Apply(StoreTokens({Hash(17)}, Tokens(5, 4), Hash(900)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

TEST(ContentNamingLearning, EqualTokensAfterDifferentPrefixesDiffer) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(2)}, Tokens(50, 4)));
  worker.Apply(StoreTokens({Hash(3)}, Tokens(5, 4), Hash(1)));
  std::vector<TokenId> other = Tokens(50, 4);
  for (const TokenId token : Tokens(5, 4)) other.push_back(token);
  EXPECT_EQ(worker.Reusable(other), 4);
}

TEST(ContentNamingLearning, AStoreOfAnUnknownParentWaitsForIt) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(3)}, Tokens(9, 4), Hash(2)));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 0);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kUnknownParent), 2u);
  EXPECT_EQ(worker.counters().unnamed, 2u);
  EXPECT_EQ(worker.counters().unnamed_gpu, 2u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12);
  EXPECT_EQ(worker.counters().named_late, 2u);
  EXPECT_EQ(worker.counters().unnamed, 0u);
  EXPECT_EQ(worker.ContentOf(Hash(3)),
            PromptContents(worker.index().keys(), Tokens(1, 12), 4, 0, {})[2]);
}

TEST(ContentNamingLearning, BlocksAfterAKnownHashNeedNoParent) {
  ContentWorker worker({Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 0, 8));
  worker.Apply(StoreTokens({Hash(2), Hash(3)}, Tokens(5, 8), Hash(1), 1, 4));
  EXPECT_TRUE(worker.Knows(Hash(3)));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 1, 4));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 8);
  EXPECT_EQ(worker.counters().ambiguous, 0u)
      << "the store of the child gave the content to its parent";
}

// A store can determine the content of its parent. The content of the parent then determines the
// contents of waiting and later children.
TEST(ContentNamingLearning, AParentThatGetsItsContentFromAChildGivesItToItsOtherChildren) {
  ContentWorker worker({Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 0, 8));
  worker.Apply(StoreTokens({Hash(9)}, Tokens(90, 4), Hash(1), 1, 4));
  EXPECT_FALSE(worker.Knows(Hash(9)));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1), 1, 4));
  EXPECT_TRUE(worker.Knows(Hash(9))) << "block 9 waited for block 1";
  worker.Apply(StoreTokens({Hash(8)}, Tokens(80, 4), Hash(1), 1, 4));
  EXPECT_TRUE(worker.Knows(Hash(8)));
}

TEST(ContentNamingLearning, GroupsOfDifferentBlockSizesShareKeys) {
  ContentWorker worker({Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(2), Hash(4)}, Tokens(1, 16), std::nullopt, 0, 8));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 0) << "group 1 holds nothing";
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8), std::nullopt, 1, 4));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 8);
}

TEST(ContentNamingLearning, APlaceholderGetsItsContentFromALaterStoreOfTheSameHash) {
  ContentWorker worker({Full(4)});
  BlockStored offloaded = StoreIn("CPU", {Hash(1)});
  offloaded.block_size = 0;
  offloaded.token_ids.emplace();
  worker.Apply(offloaded);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kNoTokens), 1u);
  EXPECT_EQ(worker.counters().unnamed, 1u);
  EXPECT_EQ(worker.counters().unnamed_gpu, 0u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.counters().unnamed, 0u);
  EXPECT_EQ(worker.counters().residencies, 2u) << "in both tiers";
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.Match(Tokens(1, 4)).with_cpu_tokens, 4);
}

TEST(ContentNamingLearning, APlaceholderOfAKnownHashIsNamedAtOnce) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), Remove({Hash(1)}));
  BlockStored offloaded = StoreIn("CPU", {Hash(1)});
  offloaded.block_size = 0;
  offloaded.token_ids.emplace();
  worker.Apply(offloaded);
  EXPECT_EQ(worker.counters().unnamed, 0u);
  EXPECT_EQ(worker.Match(Tokens(1, 4)).gpu_tokens, 0);
  EXPECT_EQ(worker.Match(Tokens(1, 4)).with_cpu_tokens, 4);
}

TEST(ContentNamingLearning, HashesOfAnyFormAreLearned) {
  ContentWorker worker;
  const std::vector<uint8_t> digest(32, 0xAB);
  worker.Apply(StoreTokens({BlockHash::FromSigned(-5)}, Tokens(1, 4)));
  worker.Apply(
      StoreTokens({BlockHash::FromBytes(digest)}, Tokens(5, 4), BlockHash::FromSigned(-5)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

// SGLang sends hashes as signed integers: about half of them are negative.
TEST(ContentNamingLearning, HashesOfAllFormsMakeOneChain) {
  const std::vector<uint8_t> digest(32, 0xAB);
  const std::vector<BlockHash> hashes = {
      BlockHash::FromSigned(-5),    Hash(7), BlockHash::FromSigned(-6),
      BlockHash::FromSigned(-7),    Hash(8), Hash(9),
      BlockHash::FromBytes(digest), Hash(10)};
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens(hashes, Tokens(1, 32)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 32)), 32);
  for (size_t i = hashes.size(); i > 0; --i) {
    worker.Apply(Remove({hashes[i - 1]}));
    EXPECT_EQ(worker.Reusable(Tokens(1, 32)), static_cast<int64_t>(4 * (i - 1)));
  }
  for (size_t i = 0; i < hashes.size(); ++i) {
    const auto parent = i == 0 ? std::nullopt : std::optional(hashes[i - 1]);
    worker.Apply(StoreTokens({hashes[i]}, Tokens(static_cast<TokenId>(4 * i + 1), 4), parent));
    EXPECT_EQ(worker.Reusable(Tokens(1, 32)), static_cast<int64_t>(4 * (i + 1)));
  }
}

TEST(ContentNamingLearning, TheZeroParentIsTheRootOnlyIfRegistered) {
  const BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4), Hash(0));
  ContentWorker strict;
  strict.Apply(store);
  EXPECT_EQ(strict.Reusable(Tokens(1, 4)), 0);
  ContentWorker registered({}, {.zero_parent_is_root = true});
  registered.Apply(store);
  EXPECT_EQ(registered.Reusable(Tokens(1, 4)), 4);
  // If the worker holds a block with the hash 0, this hash is not the root.
  registered.Apply(StoreTokens({Hash(0)}, Tokens(50, 4)));
  registered.Apply(StoreTokens({Hash(2)}, Tokens(54, 4), Hash(0)));
  EXPECT_EQ(registered.Reusable(Tokens(50, 8)), 8);
}

TEST(ContentNamingLearning, AStoreWithoutParentAndWithAnOffsetIsNotAtTheRoot) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.token_offset = 64;
  worker.Apply(store);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kUnknownParent), 1u);
  EXPECT_EQ(worker.counters().bad_stores, 0u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  store.block_hashes = {Hash(2)};
  store.token_offset = 0;
  worker.Apply(store);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
}

TEST(ContentNamingLearning, TokenPairsGiveALookaheadOfOneToken) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, {1, 2, 2, 3, 3, 4, 4, 5});
  store.tokens_per_position = 2;
  worker.Apply(store);
  EXPECT_EQ(worker.index().ShapeOf(kWorker).lookahead, 1);
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 5}, {}, 1), 4);
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 9}, {}, 1), 0) << "the last pair differs";
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 5}), 0) << "a block with lookahead has another name";
}

TEST(ContentNamingLearning, PairsContinueTheirParent) {
  ContentWorker worker;
  BlockStored first = StoreTokens({Hash(1)}, {1, 2, 2, 3, 3, 4, 4, 5});
  BlockStored next = StoreTokens({Hash(2)}, {5, 6, 6, 7, 7, 8, 8, 9}, Hash(1));
  first.tokens_per_position = next.tokens_per_position = 2;
  worker.Apply(first, next);
  EXPECT_EQ(worker.Reusable(Tokens(1, 9), {}, 1), 8);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8), {}, 1), 4) << "a different token follows the block";
}

TEST(ContentNamingLearning, PairsThatDoNotOverlapTeachNothing) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, {1, 2, 7, 3, 3, 4, 4, 5});
  store.tokens_per_position = 2;
  worker.Apply(store);
  EXPECT_EQ(worker.counters().bad_stores, 1u);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kNoTokens), 1u);
}

BlockStored WithLookahead(BlockStored store, std::vector<TokenId> tokens_after) {
  const auto width = std::ssize(tokens_after) / std::ssize(store.block_hashes);
  store.lookahead = LookaheadTokens{.width = width, .token_ids = std::move(tokens_after)};
  return store;
}

TEST(ContentNamingLearning, TokensAfterABlockArePartOfItsName) {
  ContentWorker worker;
  worker.Apply(WithLookahead(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)), {5, 6, 9, 10}));
  worker.Apply(WithLookahead(StoreTokens({Hash(3)}, Tokens(9, 4), Hash(2)), {13, 14}));
  EXPECT_EQ(worker.index().ShapeOf(kWorker).lookahead, 2);
  EXPECT_EQ(worker.Reusable(Tokens(1, 14), {}, 2), 12);
  EXPECT_EQ(worker.MatchWhole(Tokens(1, 14), {}, 2).gpu_tokens, 12);
  EXPECT_EQ(worker.MatchWhole(Tokens(1, 13), {}, 2).gpu_tokens, 8)
      << "the last block needs two tokens after it, and the prompt has one";
  std::vector<TokenId> other = Tokens(1, 14);
  other[9] = 70;
  EXPECT_EQ(worker.Reusable(other, {}, 2), 4);
}

TEST(ContentNamingLearning, LookaheadTokensThatDifferFromTheSpanTeachNothing) {
  ContentWorker worker;
  worker.Apply(WithLookahead(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)), {5, 7, 9, 10}));
  EXPECT_EQ(worker.counters().bad_stores, 1u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 10), {}, 2), 0);
}

TEST(ContentNamingLearning, TokensThatDoNotFitTheHashesTeachNothing) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 5)));            // not whole blocks
  worker.Apply(StoreTokens({Hash(2), Hash(3)}, Tokens(1, 4)));   // more hashes than blocks
  worker.Apply(StoreTokens({Hash(4)}, Tokens(1, 4), {}, 0, 0));  // no block size
  EXPECT_EQ(worker.counters().bad_stores, 2u);
  EXPECT_EQ(worker.counters().bad_events, 1u);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kNoTokens), 3u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
}

}  // namespace
}  // namespace kvcast::testing
