// Token mode: a store that names fewer hashes than its tokens hold is never placed by a guess.
// SPDX-License-Identifier: Apache-2.0
#include "router/record_path.h"
#include "router/sparse_span.h"
#include "tests/router/token_events.h"

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

TEST(TokenKeysSparse, HashesThatADenseStoreNamedArePlaced) {
  TokenModeWorker worker({}, {Full(4), WindowOf(5)});
  worker.Apply(WithNoExtraKeys(StoreTokens(Hashes(1, 4), Tokens(1, 16))),
               StoreInWindow({Hash(4)}, Tokens(1, 16), 5));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 16);
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 0);
}

TEST(TokenKeysSparse, HashesThatALaterGroupNamesArePlacedThen) {
  TokenModeWorker worker({}, {WindowOf(5), Full(4)});
  BlockStored sparse = StoreInWindow({Hash(4)}, Tokens(1, 16), 5);
  sparse.group_idx = 0;
  worker.Apply(sparse);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(4)), Unresolved::kSparse);
  worker.Apply(WithNoExtraKeys(StoreTokens(Hashes(1, 4), Tokens(1, 16), std::nullopt, 1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 16);
}

TEST(TokenKeysSparse, OneHashOfFourBlocksIsNotGuessed) {
  TokenModeWorker worker({}, {WindowOf(5)});
  BlockStored sparse = StoreInWindow({Hash(4)}, Tokens(1, 16), 5);
  sparse.group_idx = 0;
  worker.Apply(sparse);
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 0);
  EXPECT_EQ(worker.unresolved(Unresolved::kSparse), 1u);
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 0u);
}

// A block of the full group shows the states inside, for groups of smaller blocks.
TEST(TokenKeysSparse, ABlockIsPlacedOnceALaterOneIsKnown) {
  TokenModeWorker worker({}, {Full(8), WindowOf(8)});
  worker.Apply(WithNoExtraKeys(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 0, 8)));
  BlockStored first = StoreInWindow({Hash(3)}, Tokens(9, 4), 8);
  first.parent_block_hash = Hash(2);
  worker.Apply(first);
  BlockStored behind = StoreInWindow({Hash(41)}, Tokens(21, 4), 8);
  behind.parent_block_hash = Hash(40);
  worker.Apply(behind);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(41)), Unresolved::kUnknownParent);
  BlockStored end = StoreInWindow({Hash(6)}, Tokens(21, 4), 8);
  end.parent_block_hash = Hash(5);
  worker.Apply(end);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(6)), Unresolved::kUnknownParent);
  BlockStored middle = StoreInWindow({Hash(5)}, Tokens(17, 4), 8);
  middle.parent_block_hash = Hash(4);
  worker.Apply(middle);
  EXPECT_EQ(worker.Reusable(Tokens(1, 24)), 0);
  worker.Apply(WithNoExtraKeys(StoreTokens({Hash(4), Hash(6)}, Tokens(9, 16), Hash(2), 0, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 24)), 24) << "blocks 5 and 6 of the window group";
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(41)), Unresolved::kUnknownParent);
}

// What lies between a parent and a block behind a gap may hold an image that the event hides.
TEST(TokenKeysSparse, TokensOfSkippedBlocksAreNotTheirContent) {
  TokenModeWorker worker({.sparse_rule = SparseRule{EngineRules::kV021, 4, std::nullopt}},
                         {WindowOf(5)});
  BlockStored sparse = StoreInWindow({Hash(4)}, Tokens(1, 16), 5);
  sparse.group_idx = 0;
  worker.Apply(sparse);
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 0);
}

// A block and one that ends where it begins, each known from the other.
TEST(RecordPath, EndsWhereLinksGoRoundInACircle) {
  using router::TokenRecord;
  router::TokenRecords records(8, 8, [](const TokenRecord&) {});
  const auto before = records.Pin(Hash(1));
  const auto block = records.Pin(Hash(2));
  for (const auto id : {before, block}) {
    records.at(id).state = TokenRecord::State::kResolved;
    records.at(id).key = id + 100;
  }
  records.at(before).position = 8;
  records.at(before).link_kind = TokenRecord::Link::kInside;
  records.at(before).link = records.RefTo(block);
  records.at(block).position = 16;
  records.at(block).span = 8;
  records.at(block).link_kind = TokenRecord::Link::kParent;
  records.at(block).link = records.RefTo(before);
  router::RecordPath path(records, records.at(block));
  EXPECT_EQ(path.StateAt(16), records.at(block).key);
  EXPECT_EQ(path.StateAt(8), records.at(before).key);
  EXPECT_EQ(path.StateAt(4), std::nullopt);
}

TEST(PlaceByCounting, FillsWhatHasNoChoice) {
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

TEST(PlaceByCounting, RefusesWhatContradictsItself) {
  for (Blocks blocks : {Blocks{3, 2}, Blocks{kNoBlock, 0}, Blocks{4, kNoBlock}, Blocks{2, 2}}) {
    const Blocks before = blocks;
    EXPECT_FALSE(PlaceByCounting(5, blocks));
    EXPECT_EQ(blocks, before);
  }
}

// Alignment 16 = 4 blocks, window of 2 blocks: blocks 2, 3 of every 4 are cached.
TEST(PlaceByRule, DenseRetentionKeepsTheTailOfEveryAlignedBoundary) {
  const SparseRule rule{EngineRules::kMain2026August, 16, std::nullopt};
  Blocks blocks(4, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{2, 3, 6, 7}));
  blocks.assign(3, kNoBlock);  // one block had left the window
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{3, 6, 7}));
}

TEST(PlaceByRule, EnginesBeforeMay2026LoseOnlyWhatLeftTheWindow) {
  const SparseRule rule{EngineRules::kV021, 16, std::nullopt};
  Blocks blocks(3, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{5, 6, 7}));
}

TEST(PlaceByRule, SparseRetentionIsPlacedOnlyWhereOneChoiceIsLeft) {
  const SparseRule rule{EngineRules::kMain2026August, 16, 0};
  Blocks blocks(2, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{kNoBlock, kNoBlock})) << "before 16 or before 32";
  blocks = {kNoBlock, 7};
  EXPECT_TRUE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{6, 7}));
}

TEST(PlaceByRule, IsRefutedByABlockThatItDoesNotKeep) {
  const SparseRule rule{EngineRules::kMain2026August, 16, std::nullopt};
  Blocks blocks = {kNoBlock, 4};
  EXPECT_FALSE(PlaceByRule(rule, WindowOf(9), 0, 8, blocks));
}

TEST(PlaceByRule, SaysNothingOfKindsWithoutARule) {
  const SparseRule rule{EngineRules::kMain2026August, 16, std::nullopt};
  Blocks blocks(1, kNoBlock);
  EXPECT_TRUE(PlaceByRule(rule, {.kind = SpecKind::kMamba, .block_size = 4}, 0, 8, blocks));
  EXPECT_EQ(blocks, (Blocks{kNoBlock}));
}

// Registered with the wrong interval: what was placed by it is taken back when that shows.
TEST(TokenKeysSparse, ARefutedRuleIsNotUsedAgainAndItsPlacesAreTakenBack) {
  TokenModeWorker worker({.sparse_rule = SparseRule{EngineRules::kV021, 16, std::nullopt}},
                         {Full(16), WindowOf(9)});
  worker.Apply(
      WithNoExtraKeys(StoreTokens({Hash(4), Hash(8)}, Tokens(1, 32), std::nullopt, 0, 16)));
  worker.Apply(StoreInWindow({Hash(7), Hash(8)}, Tokens(1, 32), 9));
  EXPECT_EQ(worker.Reusable(Tokens(1, 32)), 32);
  worker.Apply(StoreInWindow({Hash(3), Hash(4)}, Tokens(1, 32), 9));
  EXPECT_EQ(worker.counters().rules_refuted, 1u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 32)), 0);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(7)), Unresolved::kConflict);
}

}  // namespace
}  // namespace kvcast::testing
