// Token mode: what an engine hash names is learned from token ids and parents.
// SPDX-License-Identifier: Apache-2.0
#include "tests/router/token_events.h"

namespace kvcast::testing {
namespace {

TEST(TokenKeysLearning, AStoreAtTheRootIsPromisedForItsTokens) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(900), Hash(17)}, Tokens(1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  EXPECT_EQ(worker.Reusable(Tokens(1, 7)), 4);
  EXPECT_EQ(worker.Reusable(Tokens(2, 8)), 0);
}

TEST(TokenKeysLearning, AStoreContinuesItsParentsContent) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(900)}, Tokens(1, 4)));
  worker.Apply(StoreTokens({Hash(17)}, Tokens(5, 4), Hash(900)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

TEST(TokenKeysLearning, EqualTokensBehindDifferentPrefixesDiffer) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(2)}, Tokens(50, 4)));
  worker.Apply(StoreTokens({Hash(3)}, Tokens(5, 4), Hash(1)));
  std::vector<TokenId> other = Tokens(50, 4);
  for (const TokenId token : Tokens(5, 4)) other.push_back(token);
  EXPECT_EQ(worker.Reusable(other), 4);
}

TEST(TokenKeysLearning, AStoreOfAnUnknownParentWaitsForIt) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(3)}, Tokens(9, 4), Hash(2)));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 0);
  EXPECT_EQ(worker.unresolved(Unresolved::kUnknownParent), 2u);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(3)), Unresolved::kUnknownParent);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12);
  EXPECT_EQ(worker.counters().resolved_late, 2u);
  EXPECT_EQ(worker.counters().parked_stores, 0u);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(3)), std::nullopt);
}

TEST(TokenKeysLearning, BlocksBehindAKnownHashNeedNoParent) {
  TokenModeWorker worker({}, {Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 0, 8));
  worker.Apply(StoreTokens({Hash(2), Hash(3)}, Tokens(5, 8), Hash(1), 1, 4));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(3)), std::nullopt);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 1, 4));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 8);
  EXPECT_EQ(worker.counters().conflicts, 0u) << "the parent was known from within block 2";
}

TEST(TokenKeysLearning, GroupsOfDifferentBlockSizesShareKeys) {
  TokenModeWorker worker({}, {Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(2), Hash(4)}, Tokens(1, 16), std::nullopt, 0, 8));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 0) << "group 1 holds nothing";
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8), std::nullopt, 1, 4));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 8);
}

TEST(TokenKeysLearning, APlaceholderWithoutTokensResolvesByItsHash) {
  TokenModeWorker worker;
  BlockStored offloaded = StoreIn("CPU", {Hash(1)});
  offloaded.block_size = 0;
  offloaded.token_ids.emplace();
  worker.Apply(offloaded);
  EXPECT_EQ(worker.unresolved(Unresolved::kNoTokens), 1u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.unresolved(Unresolved::kNoTokens), 0u);
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 2u) << "in both tiers";
}

TEST(TokenKeysLearning, HashesOfAnyFormAreLearned) {
  TokenModeWorker worker;
  const std::vector<uint8_t> digest(32, 0xAB);
  worker.Apply(StoreTokens({BlockHash::FromSigned(-5)}, Tokens(1, 4)));
  worker.Apply(
      StoreTokens({BlockHash::FromBytes(digest)}, Tokens(5, 4), BlockHash::FromSigned(-5)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

TEST(TokenKeysLearning, TheZeroParentIsTheRootOnlyWhereTold) {
  const BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4), Hash(0));
  TokenModeWorker strict;
  strict.Apply(store);
  EXPECT_EQ(strict.Reusable(Tokens(1, 4)), 0);
  TokenModeWorker told({.zero_parent_is_root = true});
  told.Apply(store);
  EXPECT_EQ(told.Reusable(Tokens(1, 4)), 4);
}

TEST(TokenKeysLearning, AnOffsetSaysThatAStoreWithoutParentIsNotAtTheRoot) {
  TokenModeWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.token_offset = 64;
  worker.Apply(store);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(1)), Unresolved::kUnknownParent);
  EXPECT_EQ(worker.counters().bad_stores, 0u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(TokenKeysLearning, PairsOfSpeculativeEnginesAreMatchedByPairs) {
  TokenModeWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, {1, 2, 2, 3, 3, 4, 4, 5});
  store.tokens_per_position = 2;
  worker.Apply(store);
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 5}, {}, 2), 4);
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 9}, {}, 2), 0) << "the last pair differs";
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 5}), 0) << "a plain prompt has other keys";
}

TEST(TokenKeysLearning, PairsThatDoNotOverlapTeachNothing) {
  TokenModeWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, {1, 2, 7, 3, 3, 4, 4, 5});
  store.tokens_per_position = 2;
  worker.Apply(store);
  EXPECT_EQ(worker.counters().bad_stores, 1u);
  EXPECT_EQ(worker.unresolved(Unresolved::kNoTokens), 1u);
}

TEST(TokenKeysLearning, TokensThatDoNotFitTheHashesTeachNothing) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 5)));            // not whole blocks
  worker.Apply(StoreTokens({Hash(2), Hash(3)}, Tokens(1, 4)));   // more hashes than blocks
  worker.Apply(StoreTokens({Hash(4)}, Tokens(1, 4), {}, 0, 0));  // no block size
  EXPECT_EQ(worker.counters().bad_stores, 3u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
}

}  // namespace
}  // namespace kvcast::testing
