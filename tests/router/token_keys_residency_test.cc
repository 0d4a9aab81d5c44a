// Token mode: copies, removes, clears and restarts of hashes, known or not.
// SPDX-License-Identifier: Apache-2.0
#include "tests/router/token_events.h"

namespace kvcast::testing {
namespace {

TEST(TokenKeysResidency, EveryCopyTakesARemove) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.counters().unknown_removes, 1u);
}

// vLLM's report mode "full" stores again what a request hit, window blocks that are gone included.
TEST(TokenKeysResidency, AReportOfAHitIsNoCopy) {
  const GroupSpec window{.kind = SpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 5};
  TokenModeWorker worker({}, {Full(4), window}, HitReports::kExpected);
  const auto hashes = Hashes(1, 3);
  const BlockStored full = StoreTokens(hashes, Tokens(1, 12));
  BlockStored windowed = StoreTokens(hashes, Tokens(1, 12), std::nullopt, 1);
  windowed.kv_cache_spec_kind = "sliding_window";
  windowed.kv_cache_spec_sliding_window = 5;
  worker.Apply(full, windowed, Remove(Hashes(1, 1), 1));
  worker.Apply(full, windowed);
  EXPECT_EQ(worker.index().counters(kWorker).reannounced_blocks, 6u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0) << "its window block is gone";
  worker.Apply(Remove(hashes), Remove(Hashes(2, 2), 1));
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 0u);
  worker.Apply(Remove(hashes), Remove(hashes, 1));
  EXPECT_EQ(worker.counters().unknown_removes, 6u) << "nobody remembers the report as copies";
}

TEST(TokenKeysResidency, WhereAReportIsNotExpectedTheAnswerIsNotCertain) {
  TokenModeWorker worker;
  const BlockStored store = StoreTokens(Hashes(1, 3), Tokens(1, 12));
  worker.Apply(store);
  const auto certain = [&worker] {
    const auto chain = ContentChain(Tokens(1, 13), 4, {});
    return worker.index().Match(chain, 4, 13).at(0).certain;
  };
  EXPECT_TRUE(certain());
  worker.Apply(store);
  EXPECT_FALSE(certain());
}

TEST(TokenKeysResidency, CopiesOfAParkedHashAreCountedUntilItIsKnown) {
  TokenModeWorker worker;
  const BlockStored child = StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1));
  worker.Apply(child, child, child, Remove({Hash(2)}));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Apply(Remove({Hash(2)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Apply(Remove({Hash(2)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

TEST(TokenKeysResidency, AParkedHashThatWasRemovedIsNotPromised) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), Remove({Hash(2)}));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

TEST(TokenKeysResidency, ARemovedBlockIsStillTheParentOfLaterOnes) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), Remove({Hash(1)}));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

TEST(TokenKeysResidency, TiersAndGroupsAreRemovedApart) {
  TokenModeWorker worker({}, {Full(4), Full(4)});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 0),
               StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 1));
  worker.Apply(RemoveFrom("CPU", {Hash(1)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  worker.Apply(Remove({Hash(1)}, 1));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 1u);
}

TEST(TokenKeysResidency, AClearEmptiesTheGpuAndKeepsWhatHashesName) {
  TokenModeWorker worker;
  BlockStored offloaded = StoreTokens({Hash(1)}, Tokens(1, 4));
  offloaded.medium = "CPU";
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), offloaded, AllBlocksCleared{});
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 1u) << "CPU";
  worker.Apply(Store({Hash(1)}));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(1)), std::nullopt) << "named without tokens";
}

TEST(TokenKeysResidency, AClearThatNamesATierEmptiesThatOne) {
  TokenModeWorker worker;
  BlockStored offloaded = StoreTokens({Hash(1)}, Tokens(1, 4));
  offloaded.medium = "CPU";
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), offloaded);
  worker.Apply(AllBlocksCleared{.medium = "CPU"});
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  worker.Apply(RemoveFrom("CPU", {Hash(1)}));
  EXPECT_EQ(worker.counters().unknown_removes, 1u);
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.counters().unknown_removes, 1u);
}

TEST(TokenKeysResidency, AClearTakesParkedCopiesToo) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), AllBlocksCleared{});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

TEST(TokenKeysResidency, ARestartForgetsWhatHashesName) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.keys().Restart();
  worker.index().RestartWorker(kWorker);
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(2)), Unresolved::kUnknownParent);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(50, 4)));  // another engine, another meaning
  EXPECT_EQ(worker.Reusable(Tokens(50, 4)), 4);
  EXPECT_EQ(worker.counters().conflicts, 0u);
}

TEST(TokenKeysResidency, EventsOfGroupsOutOfRangeAreCountedByTheIndex) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 64), Remove({Hash(1)}, -1));
  EXPECT_EQ(worker.index().counters(kWorker).bad_events, 2u);
  EXPECT_EQ(worker.counters().hashes, 0u);
}

TEST(TokenKeysBounds, HashesThatNobodyHoldsAreForgottenFirst) {
  TokenModeWorker worker({.hashes_max = 2});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(2)}, Tokens(11, 4)));
  worker.Apply(Remove({Hash(1)}));
  worker.Apply(StoreTokens({Hash(3)}, Tokens(21, 4)));
  EXPECT_EQ(worker.counters().forgotten_hashes, 1u);
  EXPECT_EQ(worker.Reusable(Tokens(11, 4)), 4);
  EXPECT_EQ(worker.Reusable(Tokens(21, 4)), 4);
  worker.Apply(StoreTokens({Hash(4)}, Tokens(31, 4)));
  EXPECT_EQ(worker.counters().refused_hashes, 1u);
  EXPECT_EQ(worker.Reusable(Tokens(31, 4)), 0);
  worker.Apply(Remove({Hash(2)}));
  EXPECT_EQ(worker.Reusable(Tokens(11, 4)), 0) << "a held hash was not forgotten";
}

TEST(TokenKeysBounds, TheOldestParkedStoresLeaveFirst) {
  TokenModeWorker worker({.parked_stores_max = 2});
  worker.Apply(StoreTokens({Hash(11)}, Tokens(5, 4), Hash(1)));
  worker.Apply(StoreTokens({Hash(12)}, Tokens(9, 4), Hash(1)));
  worker.Apply(StoreTokens({Hash(13)}, Tokens(13, 4), Hash(1)));
  EXPECT_EQ(worker.counters().parked_dropped, 1u);
  EXPECT_EQ(worker.counters().parked_stores, 2u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(13)), std::nullopt);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(11)), Unresolved::kUnknownParent);
}

TEST(TokenKeysBounds, ParkedTokensAreBounded) {
  TokenModeWorker worker({.parked_tokens_max = 12});
  worker.Apply(StoreTokens({Hash(11)}, Tokens(5, 4), Hash(1)));
  worker.Apply(StoreTokens({Hash(12)}, Tokens(9, 4), Hash(1)));
  worker.Apply(StoreTokens({Hash(13), Hash(14)}, Tokens(13, 8), Hash(1)));
  EXPECT_EQ(worker.counters().parked_stores, 2u) << "12 tokens";
  worker.Apply(StoreTokens(Hashes(50, 4), Tokens(30, 16), Hash(1)));
  EXPECT_EQ(worker.counters().parked_stores, 2u) << "16 tokens are never parked";
  EXPECT_EQ(worker.counters().parked_dropped, 2u);
}

TEST(TokenKeysBounds, AForgottenParentIsUnknown) {
  TokenModeWorker worker({.hashes_max = 2});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), Remove({Hash(1)}));
  worker.Apply(StoreTokens({Hash(8), Hash(9)}, Tokens(50, 8)), Remove({Hash(8), Hash(9)}));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(2)), Unresolved::kUnknownParent);
}

}  // namespace
}  // namespace kvcast::testing
