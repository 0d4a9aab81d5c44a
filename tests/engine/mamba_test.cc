// The manager keeps recurrent states at the right places, moves a running state, and copies shared
// states.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

CacheConfig FullAndMamba(MambaMode mode, int64_t block_size, int64_t num_blocks) {
  return Config({Full(block_size), Mamba(mode, block_size)}, num_blocks);
}

// Looks up the prompt and computes it up to each position of `ends` in turn.
void Prefill(TestEngine& engine, CacheRequest& request, std::vector<int64_t> ends) {
  const PrefixHit hit = engine.Lookup(request);
  int64_t computed = hit.tokens;
  bool first = true;
  for (const int64_t end : ends) {
    engine.cache().BeginStep();
    AllocateArgs args;
    args.computed_tokens = first ? 0 : computed;
    args.new_tokens = end - computed;
    args.hit = first ? &hit : nullptr;
    ASSERT_TRUE(engine.Allocate(request, args));
    computed = end;
    first = false;
  }
}

TEST(MambaAll, KeepsAStatePerBlock) {
  TestEngine engine(FullAndMamba(MambaMode::kAll, 16, 50));
  CacheRequest request = Request("0", Tokens(50));
  engine.Start(request);
  EXPECT_EQ(CachedPositions(engine.cache(), request, GroupIdx(1)), (Ids{0, 1, 2}));
}

TEST(MambaAll, SpeculationAddsStatesForDrafts) {
  CacheConfig config = FullAndMamba(MambaMode::kAll, 16, 50);
  config.groups[1].speculative_blocks = 2;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(20));
  engine.Start(request);
  EXPECT_EQ(engine.Table(request, 0).size(), 2u);
  EXPECT_EQ(engine.Table(request, 1).size(), 4u);
}

TEST(MambaAlign, KeepsOnlyTheStateAtTheEndOfTheStep) {
  TestEngine engine(FullAndMamba(MambaMode::kAlign, 16, 50));
  CacheRequest request = Request("0", Tokens(100));
  Prefill(engine, request, {48, 96});
  EXPECT_EQ(engine.Table(request, 1).size(), 6u);
  EXPECT_EQ(CachedPositions(engine.cache(), request, GroupIdx(1)), (Ids{2, 5}));
}

TEST(MambaAlign, ReleasesAStateOneStepAfterTheNextStateExists) {
  TestEngine engine(FullAndMamba(MambaMode::kAlign, 16, 50));
  CacheRequest request = Request("0", Tokens(200));
  Prefill(engine, request, {48, 96});
  const Ids table = engine.Table(request, 1);
  EXPECT_NE(table[2], 0u) << "the next step copies the state from here";
  ASSERT_TRUE(engine.Allocate(request, {.computed_tokens = 96, .new_tokens = 48}));
  EXPECT_EQ(engine.Table(request, 1)[2], 0u);
  EXPECT_NE(engine.Table(request, 1)[5], 0u);
}

TEST(MambaAlign, SpeculativeBlocksMoveForwardWithTheState) {
  CacheConfig config = FullAndMamba(MambaMode::kAlign, 16, 50);
  config.groups[1].speculative_blocks = 1;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(100));
  Prefill(engine, request, {16});
  const Ids before = engine.Table(request, 1);
  ASSERT_EQ(before.size(), 2u) << "one block for the state, one block for the draft";
  ASSERT_TRUE(engine.Allocate(request, {.computed_tokens = 16, .new_tokens = 48}));
  const Ids after = engine.Table(request, 1);
  ASSERT_EQ(after.size(), 5u);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[3], before[1]) << "the draft's block holds the new state";
  EXPECT_EQ((Ids{after[1], after[2]}), (Ids{0, 0}));
}

// Full + Mamba align, prompt of 48 tokens. A request that differs in its last token hits 0 tokens
// and gets boundary 32. The scheduler ends the first chunk of this request at 32 tokens.
TEST(MambaAlign, ASharedPrefixWithoutAStateIsABoundaryToStopAt) {
  CacheConfig config = FullAndMamba(MambaMode::kAlign, 16, 50);
  config.retention_interval = 0;
  TestEngine engine(config);
  CacheRequest first = Request("0", Tokens(48));
  Prefill(engine, first, {48});
  CacheRequest second = Request("1", Concat(Tokens(47), Tokens(1, 2000)));
  const PrefixHit hit = engine.Lookup(second);
  EXPECT_EQ(hit.tokens, 0);
  EXPECT_EQ(hit.shared_prefix_boundary, 32);
  Prefill(engine, second, {32, 48});
  CacheRequest third = Request("2", Concat(Tokens(32), Tokens(16, 3000)));
  EXPECT_EQ(engine.Lookup(third).tokens, 32);
}

// Two requests share 2 blocks (Mamba align, retention 0). If the second request does not pin the
// shared boundary, a third request hits 0 tokens, otherwise 32 tokens.
TEST(MambaAlign, APinnedBoundaryKeepsTheStateThatTheThirdRequestNeeds) {
  for (const bool pinned : {false, true}) {
    CacheConfig config = FullAndMamba(MambaMode::kAlign, 16, 50);
    config.retention_interval = 0;
    TestEngine engine(config);
    CacheRequest first = Request("0", Concat(Tokens(32), Tokens(64, 1000)));
    Prefill(engine, first, {96});
    CacheRequest second = Request("1", Concat(Tokens(32), Tokens(64, 2000)));
    PrefixHit hit = engine.Lookup(second);
    EXPECT_EQ(hit.tokens, 0);
    EXPECT_EQ(hit.shared_prefix_boundary, 32);
    if (!pinned) hit.shared_prefix_boundary = 0;
    ASSERT_TRUE(engine.Allocate(second, {.new_tokens = 32, .hit = &hit}));
    ASSERT_TRUE(engine.Allocate(second, {.computed_tokens = 32, .new_tokens = 64}));
    CacheRequest third = Request("2", Concat(Tokens(32), Tokens(64, 3000)));
    EXPECT_EQ(engine.Lookup(third).tokens, pinned ? 32 : 0);
  }
}

TEST(MambaAlign, AStateCachedInThisStepIsUsableInTheNext) {
  TestEngine engine(FullAndMamba(MambaMode::kAlign, 16, 50));
  CacheRequest first = Request("0", Tokens(40));
  Prefill(engine, first, {32});
  CacheRequest second = Request("1", Tokens(40));
  const PrefixHit hit = engine.Lookup(second);
  ASSERT_EQ(hit.tokens, 32);
  EXPECT_FALSE(engine.Allocate(second, {.new_tokens = 8, .hit = &hit}));
  engine.cache().BeginStep();
  EXPECT_TRUE(engine.Allocate(second, {.new_tokens = 8, .hit = &hit}));
}

// A request loads 32 tokens and computes 32 tokens. It needs one block for the loaded state, one
// block for the state that the step leaves, and 4 blocks of full attention.
TEST(MambaAlign, ALoadedStateAndTheStepsOwnAreTwoBlocks) {
  for (const int64_t num_blocks : {6, 7}) {
    TestEngine engine(FullAndMamba(MambaMode::kAlign, 16, num_blocks));
    CacheRequest request = Request("0", Tokens(64));
    const bool fits =
        engine.Allocate(request, {.new_tokens = 32, .external_tokens = 32, .delay_caching = true});
    ASSERT_EQ(fits, num_blocks == 7);
    if (!fits) continue;
    EXPECT_EQ(engine.Table(request, 1), (Ids{0, 3, 0, 6}));
  }
}

// A block has 64 tokens, and a hash covers 16 tokens.
class PartialTail : public ::testing::Test {
 protected:
  static CacheConfig Blocks64Hashes16() {
    CacheConfig config = FullAndMamba(MambaMode::kAlign, 64, 60);
    config.hash_block_size = 16;
    return config;
  }
  PartialTail() : engine_(Blocks64Hashes16()) {}
  TestEngine engine_;
};

TEST_F(PartialTail, TheLastHashBoundaryOfAPromptIsCachedInsideItsBlock) {
  CacheRequest first = Request("0", Tokens(100));
  Prefill(engine_, first, {64, 96});
  CacheRequest second = Request("1", Concat(Tokens(96), Tokens(30, 1000)));
  EXPECT_EQ(engine_.Lookup(second).tokens, 96);
  CacheRequest shorter = Request("2", Tokens(90));
  EXPECT_EQ(engine_.Lookup(shorter).tokens, 64);
}

TEST_F(PartialTail, ARequestThatGoesOnInsideASharedBlockGetsACopy) {
  CacheRequest first = Request("0", Tokens(100));
  Prefill(engine_, first, {64, 96});
  engine_.cache().BeginStep();
  CacheRequest second = Request("1", Concat(Tokens(96), Tokens(30, 1000)));
  const PrefixHit hit = engine_.Lookup(second);
  ASSERT_TRUE(engine_.Allocate(second, {.new_tokens = 30, .hit = &hit}));
  const std::vector<BlockCopy> copies = engine_.cache().TakeCopies();
  ASSERT_EQ(copies.size(), 2u) << "one per group";
  for (uint32_t group = 0; group < 2; ++group) {
    EXPECT_EQ(copies[group].source, hit.blocks[group][1]);
    EXPECT_EQ(copies[group].target.value, engine_.Table(second, group)[1]);
    EXPECT_EQ(copies[group].source.value, engine_.Table(first, group)[1]);
  }
  // The source and the target are held until the copy has run, even if both requests have ended.
  const int64_t free = engine_.free_blocks();
  engine_.Free(first);
  engine_.Free(second);
  EXPECT_LT(engine_.free_blocks(), 59);
  EXPECT_GT(engine_.free_blocks(), free);
  engine_.cache().ReleaseCopies(copies);
  EXPECT_EQ(engine_.free_blocks(), 59);
  EXPECT_TRUE(engine_.cache().CheckInvariants().ok());
}

// The owner of the entry continues and overwrites its state block, so the entry moves to a copy.
TEST_F(PartialTail, TheOwnersEntryMovesToACopyWithoutAnEvent) {
  CacheRequest first = Request("0", Tokens(100));
  Prefill(engine_, first, {64, 96});
  const Ids before = engine_.Table(first, 1);
  engine_.cache().TakeEvents();
  engine_.cache().BeginStep();
  ASSERT_TRUE(engine_.Allocate(first, {.computed_tokens = 96, .new_tokens = 4}));
  EXPECT_EQ(engine_.Table(first, 1)[1], before[1]) << "a running request stays on its block";
  EXPECT_TRUE(engine_.cache().TakeEvents().empty());
  const auto copies = engine_.cache().TakeCopies();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].source.value, before[1]);
  CacheRequest second = Request("1", Concat(Tokens(96), Tokens(30, 1000)));
  EXPECT_EQ(engine_.Lookup(second).blocks[1][1], copies[0].target);
  engine_.cache().ReleaseCopies(copies);
  EXPECT_TRUE(engine_.cache().CheckInvariants().ok());
}

TEST_F(PartialTail, EnginesBeforeJune2026CacheNoPrefixThatEndsInsideABlock) {
  for (const EngineRules rules : {EngineRules::kV021, EngineRules::kMain2026May}) {
    CacheConfig config = Blocks64Hashes16();
    config.rules = rules;
    TestEngine engine(config);
    CacheRequest request = Request("0", Tokens(100));
    Prefill(engine, request, {64, 96});
    for (const Event& event : engine.cache().TakeEvents()) {
      EXPECT_EQ(std::get<BlockStored>(event).block_size, 64);
    }
  }
}

// Multi-module MTP recomputes the last 3 tokens, so cached tokens lag 3 tokens behind the state.
// When the 2 tokens of the prompt are cached, no block holds their state any more.
TEST_F(PartialTail, IsNotCachedAfterTheStateHasMovedOn) {
  CacheConfig config = Config({Eagle(Full(4)), Eagle(Mamba(MambaMode::kAlign, 4))}, 60);
  config.hash_block_size = 2;
  config.mtp_lookahead_tokens = 4;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(2));
  engine.Start(request);
  for (TokenId token = 0; token < 8; ++token) ASSERT_TRUE(engine.Decode(request, token));
  for (const Event& event : engine.cache().TakeEvents()) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || stored->group_idx != 1) continue;
    EXPECT_EQ(stored->block_size, 4);
  }
}

}  // namespace
}  // namespace kvcast::engine
