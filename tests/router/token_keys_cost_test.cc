// Token mode on streams that would cost a careless reader time or memory without end: each test
// takes milliseconds, and minutes where one event costs as much as all that is known.
// SPDX-License-Identifier: Apache-2.0
#include "router/sparse_span.h"
#include "tests/router/token_events.h"

namespace kvcast::testing {
namespace {

// One prompt of a block for each number.
BlockStored OwnPrompt(int64_t number, TokenId first_token) {
  return StoreTokens({Hash(static_cast<uint64_t>(number))}, {first_token, number, 0, 0});
}

TEST(TokenKeysCost, AConflictCostsWhatWasLearnedFromIt) {
  constexpr int64_t kPrompts = 100'000;
  constexpr int64_t kConflicts = 50'000;
  TokenKeys keys({.hash_block_size = 4});
  for (int64_t i = 0; i < kPrompts; ++i) keys.Rekey(Batch(OwnPrompt(i, 1)));
  for (int64_t i = 0; i < kConflicts; ++i) keys.Rekey(Batch(OwnPrompt(i, 2)));
  EXPECT_EQ(keys.counters().conflicts, uint64_t{kConflicts});
  EXPECT_EQ(keys.counters().unresolved_gpu, uint64_t{kConflicts});
}

// Every other hash of the store contradicts the one before it.
TEST(TokenKeysCost, AStoreFullOfConflictsIsGivenUpAsAWhole) {
  constexpr int64_t kHashes = 20'000;
  TokenKeys keys({.hash_block_size = 4});
  std::vector<BlockHash> hashes;
  for (int64_t i = 0; i < kHashes; ++i) {
    keys.Rekey(Batch(OwnPrompt(i, 1)));
    hashes.push_back(Hash(static_cast<uint64_t>(i)));
  }
  keys.Rekey(Batch(StoreTokens(hashes, Tokens(1, 4 * kHashes))));
  EXPECT_EQ(keys.counters().unresolved_gpu, uint64_t{kHashes});
}

TEST(TokenKeysCost, EqualStoresWaitAsOne) {
  TokenModeWorker worker;
  const BlockStored orphan = StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1));
  for (int i = 0; i < 1000; ++i) worker.Apply(orphan);
  BlockStored other = orphan;
  other.group_idx = 1;
  worker.Apply(other);
  EXPECT_EQ(worker.counters().parked_stores, 2u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.counters().parked_stores, 0u);
  worker.Apply(orphan, StoreTokens({Hash(3)}, Tokens(9, 4), Hash(30)));
  EXPECT_EQ(worker.counters().parked_stores, 1u);
}

TEST(TokenKeysCost, AClearOfAnEmptyTierCostsNothing) {
  TokenKeys keys({.hash_block_size = 4});
  for (int64_t i = 0; i < 100'000; ++i) keys.Rekey(Batch(OwnPrompt(i, 1)));
  for (int i = 0; i < 100'000; ++i) keys.Rekey(Batch(AllBlocksCleared{}));
  EXPECT_EQ(keys.counters().hashes, 100'000u);
}

TEST(TokenKeysCost, AWindowOfAnySizeIsNotCountedOut) {
  GroupSpec window{.kind = SpecKind::kSlidingWindow, .block_size = 4};
  window.sliding_window = kMaxWindow;
  const SparseRule rule{EngineRules::kMain2026August, 4, 0};
  std::vector<int64_t> blocks_of = {router::kNoBlock};
  EXPECT_TRUE(router::PlaceByRule(rule, window, 0, 4, blocks_of));
  EXPECT_EQ(blocks_of[0], router::kNoBlock);
}

TEST(TokenKeysCost, OnlySoManyHashesAreKeptThatNobodyHolds) {
  TokenKeys keys({.hash_block_size = 4, .idle_hashes_max = 10});
  for (int64_t i = 0; i < 100; ++i) {
    keys.Rekey(Batch(OwnPrompt(i, 1)));
    if (i >= 20) keys.Rekey(Batch(Remove({Hash(static_cast<uint64_t>(i))})));
  }
  EXPECT_EQ(keys.counters().hashes, 30u);
  EXPECT_EQ(keys.counters().forgotten_hashes, 70u);
}

}  // namespace
}  // namespace kvcast::testing
