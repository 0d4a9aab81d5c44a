// Copies, removes, clears, restarts and snapshots work for blocks with and without known content.
// The number of names of evicted blocks and the number of waiting stores are bounded.
// SPDX-License-Identifier: Apache-2.0
#include "router/names/idle_names.h"
#include "router/names/pending_stores.h"
#include "src/base/sanitizers.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

TEST(ContentNamingResidency, EveryCopyTakesARemove) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.counters().unknown_removes, 1u);
}

TEST(ContentNamingResidency, ARefreshIsNotACopy) {
  ContentWorker worker({}, {.repeats_are_refreshes = true});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.Apply(Remove({Hash(1)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_EQ(worker.counters().residencies, 0u);
}

// A refreshed block keeps its name in every tier.
TEST(ContentNamingResidency, ARefreshOnOneTierIsNotARefreshOnAnotherTier) {
  ContentWorker worker({}, {.repeats_are_refreshes = true});
  BlockStored on_host = StoreTokens({Hash(1)}, Tokens(1, 4));
  on_host.medium = "CPU";
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), on_host, on_host);
  EXPECT_EQ(worker.counters().residencies, 2u);
  worker.Apply(RemoveFrom("CPU", {Hash(1)}));
  EXPECT_EQ(worker.counters().residencies, 1u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
}

// With report mode "full", vLLM announces the hit of a request as a store, including window blocks
// that it has evicted.
TEST(ContentNamingResidency, AReportOfAHitIsNotACopy) {
  ContentWorker worker({Full(4), Window(5, 4)}, {.hit_reports = HitReports::kExpected});
  const auto hashes = Hashes(1, 3);
  const BlockStored full = StoreTokens(hashes, Tokens(1, 12));
  BlockStored windowed = StoreTokens(hashes, Tokens(1, 12), std::nullopt, 1);
  windowed.kv_cache_spec_kind = "sliding_window";
  windowed.kv_cache_spec_sliding_window = 5;
  worker.Apply(full, windowed, Remove(Hashes(1, 1), 1));
  worker.Apply(full, windowed);
  EXPECT_EQ(worker.counters().reannounced_blocks, 6u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0) << "the window block is gone";
  worker.Apply(Remove(hashes), Remove(Hashes(2, 2), 1));
  EXPECT_EQ(worker.counters().residencies, 0u);
  worker.Apply(Remove(hashes), Remove(hashes, 1));
  EXPECT_EQ(worker.counters().unknown_removes, 6u) << "the report is not counted as copies";
}

TEST(ContentNamingResidency, IfAReportIsNotExpectedTheAnswerIsNotCertain) {
  ContentWorker worker;
  const BlockStored store = StoreTokens(Hashes(1, 3), Tokens(1, 12));
  worker.Apply(store);
  EXPECT_TRUE(worker.Match(Tokens(1, 12)).certain);
  worker.Apply(store);
  EXPECT_FALSE(worker.Match(Tokens(1, 12)).certain);
}

TEST(ContentNamingResidency, CopiesOfABlockThatWaitsAreCountedUntilItIsNamed) {
  ContentWorker worker;
  const BlockStored child = StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1));
  worker.Apply(child, child, child, Remove({Hash(2)}));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Apply(Remove({Hash(2)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Apply(Remove({Hash(2)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

TEST(ContentNamingResidency, CopiesOnAllTiersAreNamedAtOnce) {
  ContentWorker worker({Full(4)});
  BlockStored child = StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1));
  worker.Apply(child, child);
  child.medium = "CPU";
  worker.Apply(child);
  EXPECT_EQ(worker.counters().unnamed, 2u);
  EXPECT_EQ(worker.counters().unnamed_gpu, 1u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.counters().unnamed, 0u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Apply(Remove({Hash(2), Hash(2)}));
  EXPECT_EQ(worker.counters().unknown_removes, 0u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
  EXPECT_EQ(worker.Match(Tokens(1, 8)).with_cpu_tokens, 8);
}

TEST(ContentNamingResidency, ABlockThatWaitedAndWasRemovedIsNotPromised) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), Remove({Hash(2)}));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

TEST(ContentNamingResidency, ARemovedBlockIsStillTheParentOfLaterBlocks) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), Remove({Hash(1)}));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  EXPECT_EQ(worker.counters().named_late, 0u);
}

TEST(ContentNamingResidency, TiersAndGroupsAreRemovedApart) {
  ContentWorker worker({Full(4), Full(4)});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 0),
               StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 1));
  worker.Apply(RemoveFrom("CPU", {Hash(1)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  worker.Apply(Remove({Hash(1)}, 1));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_EQ(worker.counters().residencies, 1u);
}

TEST(ContentNamingResidency, AClearEmptiesTheGpuAndKeepsTheNamesOfOtherTiers) {
  ContentWorker worker({Full(4)});
  BlockStored offloaded = StoreTokens({Hash(1)}, Tokens(1, 4));
  offloaded.medium = "CPU";
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), offloaded, AllBlocksCleared{});
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_EQ(worker.counters().residencies, 1u) << "CPU";
  worker.Apply(StoreFull({Hash(1)}, 0, 4));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4) << "named without tokens";
  EXPECT_EQ(worker.counters().unnamed, 0u);
}

TEST(ContentNamingResidency, AClearTakesUnnamedBlocksToo) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), AllBlocksCleared{});
  EXPECT_EQ(worker.counters().unnamed, 0u);
  EXPECT_EQ(worker.counters().unnamed_gpu, 0u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

TEST(ContentNamingResidency, AClearThatNamesATierEmptiesThatTier) {
  ContentWorker worker;
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

TEST(ContentNamingResidency, ARestartForgetsTheNamesOfHashes) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(9)}, Tokens(80, 4)),
               Remove({Hash(9)}));
  worker.index().RestartWorker(kWorker);
  EXPECT_FALSE(worker.index().ShapeOf(kWorker).has_named);
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  worker.Apply(StoreTokens({Hash(3)}, Tokens(5, 4), Hash(9)));
  EXPECT_EQ(worker.counters().unnamed, 2u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(50, 4)));  // another engine, another content
  EXPECT_EQ(worker.Reusable(Tokens(50, 4)), 4);
  EXPECT_EQ(worker.counters().ambiguous, 0u);
}

TEST(ContentNamingResidency, ARestartForgetsAmbiguousNamesAndWaitingStores) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(90, 4)),
               StoreTokens({Hash(5)}, Tokens(5, 4), Hash(4)));
  EXPECT_TRUE(worker.Match(Tokens(1, 4)).ambiguous);
  worker.index().RestartWorker(kWorker);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(4)}, Tokens(1, 4)));
  EXPECT_FALSE(worker.Knows(Hash(5)));
  worker.index().RestartWorker(kWorker);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_FALSE(worker.Match(Tokens(1, 4)).ambiguous);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
}

TEST(ContentNamingResidency, EventsOfGroupsOutOfRangeAreCounted) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 64), Remove({Hash(1)}, -1));
  EXPECT_EQ(worker.counters().bad_events, 2u);
  EXPECT_EQ(worker.counters().residencies, 0u);
}

// A snapshot of the publisher has the held blocks without tokens.
TEST(ContentNamingSnapshot, BlocksKeepTheNamesThatTheStreamGaveThem) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(1), Hash(2), Hash(3)}, Tokens(1, 12)), Remove({Hash(2)}));
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(StoreFull({Hash(1)}, 0, 4));
  worker.ApplyHidden(StoreFull({Hash(2)}, 0, 4));  // the block had been evicted
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 4) << "the visible generation";
  worker.index().SwapHidden(kWorker);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 8);
  EXPECT_EQ(worker.counters().unnamed, 0u);
  EXPECT_TRUE(worker.index().ShapeOf(kWorker).has_named);
}

TEST(ContentNamingSnapshot, NamesOfRemovedBlocksOutliveTheSnapshot) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), Remove({Hash(1)}));
  worker.index().BeginHidden(kWorker);
  worker.index().SwapHidden(kWorker);  // the publisher holds no block
  worker.Apply(StoreFull({Hash(1)}, 0, 4));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
}

TEST(ContentNamingSnapshot, AnUnnamedBlockStaysUnnamed) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(StoreFull({Hash(2), Hash(7)}, 0, 4));
  worker.index().SwapHidden(kWorker);
  EXPECT_EQ(worker.counters().unnamed, 2u);
  EXPECT_TRUE(worker.index().ShapeOf(kWorker).has_unnamed);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8) << "the store of block 2 still waited for block 1";
}

TEST(ContentNamingSnapshot, TokensOfTheSnapshotNameBlocksToo) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), StoreFull({Hash(1)}, 0, 4));
  worker.index().SwapHidden(kWorker);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

TEST(ContentNamingSnapshot, AStoreThatWaitsInTheSnapshotWaitsAfterIt) {
  ContentWorker worker({Full(4)});
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  worker.index().SwapHidden(kWorker);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

TEST(ContentNamingSnapshot, AmbiguousNamesStayAmbiguous) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(90, 4)));
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.index().SwapHidden(kWorker);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_TRUE(worker.Match(Tokens(1, 4)).ambiguous);
}

TEST(ContentNamingSnapshot, NamesThatTheSnapshotContradictsAreAmbiguous) {
  ContentWorker worker({Full(4)});
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(90, 4)));
  worker.index().SwapHidden(kWorker);
  EXPECT_TRUE(worker.Match(Tokens(1, 4)).ambiguous);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(ContentNamingBounds, NamesOfEvictedBlocksAreForgottenInTheEnd) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), Remove({Hash(1)}));
  const uint64_t others = 20 * router::IdleNames::kCapacity;
  for (uint64_t i = 0; i < others; ++i) {
    const auto first = static_cast<TokenId>(1000 + 4 * i);
    worker.Apply(StoreTokens({Hash(100 + i)}, Tokens(first, 4)), Remove({Hash(100 + i)}));
  }
  EXPECT_GT(worker.counters().forgotten_names, others - router::IdleNames::kCapacity);
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_FALSE(worker.Knows(Hash(2)));
  worker.Apply(StoreTokens({Hash(3)}, Tokens(5, 4), Hash(99 + others)));
  EXPECT_TRUE(worker.Knows(Hash(3))) << "the last name is known";
}

TEST(ContentNamingBounds, NamesOfHeldBlocksAreNotForgotten) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  for (uint64_t i = 0; i < 20 * router::IdleNames::kCapacity; ++i) {
    const auto first = static_cast<TokenId>(1000 + 4 * i);
    worker.Apply(StoreTokens({Hash(100 + i)}, Tokens(first, 4)), Remove({Hash(100 + i)}));
  }
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

using router::PendingStores;

TEST(PendingStores, EqualStoresWaitAsOne) {
  PendingStores parked;
  BlockStored orphan = StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1));
  for (int i = 0; i < 1000; ++i) parked.Park(1, orphan);
  orphan.group_idx = 1;
  parked.Park(1, orphan);
  EXPECT_EQ(parked.size(), 1u);
  orphan.block_hashes = {Hash(3)};
  parked.Park(1, orphan);
  EXPECT_EQ(parked.size(), 2u);
  EXPECT_EQ(parked.Take(1).size(), 2u);
  EXPECT_TRUE(parked.empty());
  EXPECT_TRUE(parked.Take(1).empty());
}

TEST(PendingStores, TheOldestLeaveFirst) {
  PendingStores parked;
  const BlockStored store = StoreTokens({Hash(2)}, Tokens(5, 4));
  const uint64_t more = 3;
  for (uint64_t i = 0; i < PendingStores::kMaxStores + more; ++i) parked.Park(i, store);
  EXPECT_EQ(parked.size(), PendingStores::kMaxStores);
  EXPECT_EQ(parked.dropped(), more);
  EXPECT_TRUE(parked.Take(more - 1).empty());
  EXPECT_EQ(parked.Take(more).size(), 1u);
}

TEST(PendingStores, TokensAreBounded) {
  PendingStores parked;
  const auto quarter = static_cast<int64_t>(PendingStores::kMaxTokens / 4);
  for (uint64_t i = 0; i < 5; ++i) parked.Park(i, StoreTokens({Hash(i)}, Tokens(1, quarter)));
  EXPECT_EQ(parked.size(), 4u);
  EXPECT_TRUE(parked.Take(0).empty());
  parked.Park(9, StoreTokens({Hash(9)}, Tokens(1, 4 * quarter + 1)));
  EXPECT_EQ(parked.size(), 4u) << "the store has too many tokens to wait";
  EXPECT_EQ(parked.dropped(), 2u);
}

TEST(PendingStores, TakenStoresLeaveNothingBehind) {
  PendingStores parked;
  const BlockStored store = StoreTokens({Hash(2)}, Tokens(5, 4));
  for (uint64_t i = 0; i < 10 * PendingStores::kMaxStores; ++i) {
    parked.Park(i, store);
    EXPECT_EQ(parked.Take(i).size(), 1u);
  }
  EXPECT_EQ(parked.dropped(), 0u);
  EXPECT_EQ(parked.size(), 0u);
}

// The size of all waiting stores together is bounded, including their extra keys.
TEST(PendingStores, ExtraKeysAreBounded) {
  PendingStores parked;
  BlockStored store = StoreTokens({Hash(2)}, Tokens(5, 4));
  const size_t keys = PendingStores::kMaxTokens * sizeof(TokenId) / sizeof(ExtraKey) / 4 + 1;
  store.extra_keys.emplace(1, ExtraKeys(keys));
  for (uint64_t i = 0; i < 5; ++i) parked.Park(i, store);
  EXPECT_EQ(parked.size(), 3u);
  EXPECT_EQ(parked.dropped(), 2u);
}

TEST(PendingStores, MovedStoresKeepTheirOrder) {
  PendingStores elder;
  PendingStores younger;
  for (uint64_t i = 0; i < 3; ++i) elder.Park(1, StoreTokens({Hash(i)}, Tokens(1, 4)));
  younger.Park(1, StoreTokens({Hash(9)}, Tokens(1, 4)));
  younger.Park(1, StoreTokens({Hash(2)}, Tokens(1, 4)));
  younger.TakeAll(elder);
  EXPECT_TRUE(elder.empty());
  std::vector<BlockHash> hashes;
  for (const BlockStored& store : younger.Take(1)) hashes.push_back(store.block_hashes[0]);
  EXPECT_EQ(hashes, (std::vector<BlockHash>{Hash(9), Hash(2), Hash(0), Hash(1)}));
}

// The cost of a store does not grow with the number of waiting stores of the same parent. Otherwise
// this test would take hours.
TEST(PendingStores, TheCostDoesNotGrowWithTheNumberOfSiblings) {
  PendingStores parked;
  constexpr int64_t kTokens = 256;
  constexpr uint64_t kRounds = (kSanitized ? 4 : 100) * PendingStores::kMaxStores;
  BlockStored store = StoreTokens({Hash(2)}, Tokens(5, kTokens));
  for (uint64_t i = 0; i < kRounds; ++i) {
    store.token_ids->back() = static_cast<TokenId>(i);
    parked.Park(1, store);
  }
  EXPECT_EQ(parked.size(), PendingStores::kMaxStores);
  EXPECT_EQ(parked.Take(1).front().token_ids->back(),
            static_cast<TokenId>(kRounds - PendingStores::kMaxStores));
}

}  // namespace
}  // namespace kvcast::testing
