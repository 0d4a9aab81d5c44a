// A sparse store has fewer hashes than its token span has blocks. The index never guesses the
// positions of these hashes.
// SPDX-License-Identifier: Apache-2.0
#include "router/names/sparse_span.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

using router::kNoBlock;
using router::PlaceByCounting;
using router::PlaceByRule;
using Blocks = std::vector<int64_t>;

GroupSpec WindowOf(int64_t window) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = 4, .sliding_window = window};
}
BlockStored StoreInWindow(std::vector<BlockHash> hashes, std::vector<TokenId> tokens,
                          int64_t window) {
  BlockStored event = StoreWindow(std::move(hashes), 1, window, 4);
  event.token_ids = std::move(tokens);
  return WithNoExtraKeys(event);
}

TEST(ContentNamingSparse, HashesThatADenseStoreNamedArePlaced) {
  ContentWorker worker({Full(4), WindowOf(5)});
  worker.Apply(WithNoExtraKeys(StoreTokens(Hashes(1, 4), Tokens(1, 16))),
               StoreInWindow({Hash(4)}, Tokens(1, 16), 5));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 16);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 0);
}

TEST(ContentNamingSparse, HashesThatALaterGroupNamesArePlacedThen) {
  ContentWorker worker({WindowOf(5), Full(4)});
  BlockStored sparse = StoreInWindow({Hash(4)}, Tokens(1, 16), 5);
  sparse.group_idx = 0;
  worker.Apply(sparse);
  EXPECT_FALSE(worker.Knows(Hash(4)));
  worker.Apply(WithNoExtraKeys(StoreTokens(Hashes(1, 4), Tokens(1, 16), std::nullopt, 1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 16);
}

TEST(ContentNamingSparse, OneHashOfFourBlocksIsNotGuessed) {
  ContentWorker worker({WindowOf(5)});
  BlockStored sparse = StoreInWindow({Hash(4)}, Tokens(1, 16), 5);
  sparse.group_idx = 0;
  worker.Apply(sparse);
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 0);
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kSparse), 1u);
  EXPECT_EQ(worker.index().Match(Hashes(4, 1), 4, 5).at(0).gpu_tokens, 4)
      << "a query by hash finds the block";
}

// Stores of small blocks wait until a group of larger blocks names the block before them.
TEST(ContentNamingSparse, ABlockIsNamedAfterTheBlockBeforeIt) {
  ContentWorker worker({Full(8), WindowOf(8)});
  worker.Apply(WithNoExtraKeys(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 0, 8)));
  BlockStored first = StoreInWindow({Hash(3)}, Tokens(9, 4), 8);
  first.parent_block_hash = Hash(2);
  worker.Apply(first);
  BlockStored behind = StoreInWindow({Hash(41)}, Tokens(21, 4), 8);
  behind.parent_block_hash = Hash(40);
  worker.Apply(behind);
  EXPECT_FALSE(worker.Knows(Hash(41)));
  BlockStored end = StoreInWindow({Hash(6)}, Tokens(21, 4), 8);
  end.parent_block_hash = Hash(5);
  worker.Apply(end);
  EXPECT_FALSE(worker.Knows(Hash(6)));
  BlockStored middle = StoreInWindow({Hash(5)}, Tokens(17, 4), 8);
  middle.parent_block_hash = Hash(4);
  worker.Apply(middle);
  EXPECT_EQ(worker.Reusable(Tokens(1, 24)), 0);
  worker.Apply(WithNoExtraKeys(StoreTokens({Hash(4), Hash(6)}, Tokens(9, 16), Hash(2), 0, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 24)), 24) << "blocks 5 and 6 of the window group";
  EXPECT_FALSE(worker.Knows(Hash(41)));
}

// The event has no hash and no extra keys for a skipped block. The tokens of this block may contain
// an image that the event does not name.
TEST(ContentNamingSparse, TokensOfSkippedBlocksAreNotTheirContent) {
  ContentWorker worker({WindowOf(5)},
                       {.sparse_rule = SparseRule{EngineRules::kV021, 4, std::nullopt}});
  BlockStored sparse = StoreInWindow({Hash(4)}, Tokens(1, 16), 5);
  sparse.group_idx = 0;
  worker.Apply(sparse);
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 0);
}

TEST(PlaceByCounting, PlacesHashesThatFitInOneWayOnly) {
  Blocks blocks = {kNoBlock, 2, kNoBlock, 5};
  EXPECT_TRUE(PlaceByCounting(6, blocks));
  EXPECT_EQ(blocks, (Blocks{kNoBlock, 2, kNoBlock, 5}));
  blocks = {kNoBlock, 2, kNoBlock, kNoBlock, 5};
  EXPECT_TRUE(PlaceByCounting(6, blocks));
  EXPECT_EQ(blocks, (Blocks{kNoBlock, 2, 3, 4, 5}));
  blocks = {kNoBlock, kNoBlock, 2};
  EXPECT_TRUE(PlaceByCounting(9, blocks));
  EXPECT_EQ(blocks, (Blocks{0, 1, 2}));
}

TEST(PlaceByCounting, RefusesPlacesThatContradictEachOther) {
  for (Blocks blocks : {Blocks{3, 2}, Blocks{kNoBlock, 0}, Blocks{4, kNoBlock}, Blocks{2, 2}}) {
    const Blocks before = blocks;
    EXPECT_FALSE(PlaceByCounting(5, blocks));
    EXPECT_EQ(blocks, before);
  }
}

// Alignment 16 = 4 blocks, window of 2 blocks: blocks 2 and 3 of every 4 are cached.
TEST(PlaceByRule, DenseRetentionKeepsTheTailOfEveryAlignedBoundary) {
  const SparseRule rule{EngineRules::kMain2026August, 16, std::nullopt};
  Blocks blocks(4, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{2, 3, 6, 7}));
  blocks.assign(3, kNoBlock);  // one block has left the window
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{3, 6, 7}));
}

TEST(PlaceByRule, EnginesBeforeMay2026LoseOnlyBlocksThatLeftTheWindow) {
  const SparseRule rule{EngineRules::kV021, 16, std::nullopt};
  Blocks blocks(3, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{5, 6, 7}));
}

TEST(PlaceByRule, SparseRetentionIsPlacedOnlyWhereOneChoiceIsLeft) {
  const SparseRule rule{EngineRules::kMain2026August, 16, 0};
  Blocks blocks(2, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{kNoBlock, kNoBlock}))
      << "the blocks before token 16 or the blocks before token 32";
  blocks = {kNoBlock, 7};
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{6, 7}));
}

TEST(PlaceByRule, IsRefutedByABlockThatItDoesNotKeep) {
  const SparseRule rule{EngineRules::kMain2026August, 16, std::nullopt};
  Blocks blocks = {kNoBlock, 4};
  EXPECT_FALSE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
}

// PlaceByRule tries each pair of boundaries on all blocks of the span.
TEST(PlaceByRule, SpansThatCostTooMuchStayUnplaced) {
  constexpr int64_t kBoundaries = 80;
  for (const int64_t a_boundary : {int64_t{10}, int64_t{10'000}}) {
    const int64_t end = kBoundaries * a_boundary;
    const SparseRule rule{EngineRules::kMain2026August, 4 * a_boundary, 0};
    Blocks blocks = {kNoBlock, end - 1};
    EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, end, blocks));
    EXPECT_EQ(blocks, (Blocks{a_boundary == 10 ? end - 2 : kNoBlock, end - 1}));
  }
}

TEST(PlaceByRule, PlacesNoBlocksOfKindsWithoutARule) {
  const SparseRule rule{EngineRules::kMain2026August, 16, std::nullopt};
  Blocks blocks(1, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, {.kind = SpecKind::kMamba, .block_size = 4}, 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{kNoBlock}));
}

// Returns the event without extra keys. The content of each block of the span is then known, so the
// index finds known blocks in the span.
BlockStored Plain(BlockStored event) {
  event.extra_keys.reset();
  return event;
}

TEST(ContentNamingSparse, ARulePlacesBlocksThatAGroupOfLargerBlocksDoesNotName) {
  ContentWorker worker({Full(16), WindowOf(9)},
                       {.sparse_rule = SparseRule{EngineRules::kMain2026August, 16, std::nullopt}});
  worker.Apply(StoreTokens({Hash(4), Hash(8)}, Tokens(1, 32), std::nullopt, 0, 16));
  worker.Apply(Plain(StoreInWindow({Hash(3), Hash(4), Hash(7), Hash(8)}, Tokens(1, 32), 9)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 16);
  EXPECT_EQ(worker.Reusable(Tokens(1, 32)), 32);
}

// A store contradicts the rule while a snapshot is being built.
TEST(ContentNamingSparse, ARefutedRuleStaysRefutedAfterASnapshot) {
  ContentWorker worker({Full(16), WindowOf(9)},
                       {.sparse_rule = SparseRule{EngineRules::kV021, 16, std::nullopt}});
  worker.Apply(StoreTokens({Hash(4), Hash(8)}, Tokens(1, 32), std::nullopt, 0, 16));
  worker.index().BeginHidden(kWorker);
  worker.Apply(Plain(StoreInWindow({Hash(3), Hash(4)}, Tokens(1, 32), 9)));
  EXPECT_EQ(worker.counters().rules_refuted, 1u);
  worker.index().SwapHidden(kWorker);
  worker.Apply(Plain(StoreInWindow({Hash(7), Hash(8)}, Tokens(1, 32), 9)));
  EXPECT_EQ(worker.counters().rules_refuted, 1u);
  EXPECT_FALSE(worker.Knows(Hash(7)));
}

// The registered rule is wrong. After a store contradicts the rule, the index does not use it.
TEST(ContentNamingSparse, ARefutedRuleIsNotUsedAgain) {
  ContentWorker worker({Full(16), WindowOf(9)},
                       {.sparse_rule = SparseRule{EngineRules::kV021, 16, std::nullopt}});
  worker.Apply(StoreTokens({Hash(4), Hash(8)}, Tokens(1, 32), std::nullopt, 0, 16));
  worker.Apply(Plain(StoreInWindow({Hash(3), Hash(4)}, Tokens(1, 32), 9)));
  EXPECT_EQ(worker.counters().rules_refuted, 1u);
  EXPECT_EQ(worker.counters().ambiguous, 0u);
  EXPECT_FALSE(worker.Knows(Hash(3)));
  EXPECT_TRUE(worker.Knows(Hash(4)));
  worker.Apply(Plain(StoreInWindow({Hash(7), Hash(8)}, Tokens(1, 32), 9)));
  EXPECT_EQ(worker.counters().rules_refuted, 1u);
  EXPECT_EQ(worker.counters().ambiguous, 0u);
}

}  // namespace
}  // namespace kvcast::testing
