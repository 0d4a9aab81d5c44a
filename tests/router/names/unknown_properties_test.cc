// An answer lists each unknown property of a worker that could change the answer. A property is
// unknown if it is missing in the events and in the registration. The index learns the lookahead of
// the hashes from stores.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

GroupSpec Eagle(GroupSpec spec) {
  spec.eagle = true;
  return spec;
}
GroupSpec Mla() { return {.kind = SpecKind::kMlaAttention, .block_size = 4}; }

// Blocks 1 to 3 of the prompt 1 ... 12.
BlockStored ThreeBlocks(int64_t group = 0) {
  return StoreTokens(Hashes(1, 3), Tokens(1, 12), std::nullopt, group);
}

TEST(UnknownProperties, NothingIsUnknownIfGroupsAreRegistered) {
  ContentWorker worker({Full(4), Window(5, 4)});
  worker.Apply(ThreeBlocks(), OfKind(ThreeBlocks(1), "sliding_window", 5));
  EXPECT_EQ(worker.Match(Tokens(1, 12)).unknown, 0u);
  EXPECT_EQ(worker.Match(Tokens(1, 20)).unknown, 0u);
  EXPECT_EQ(worker.MatchWhole(Tokens(1, 12)).unknown, 0u);
}

TEST(UnknownProperties, KindsAreKnownFromTheStreamOrTheRegistration) {
  ContentWorker silent;
  silent.Apply(OfKind(ThreeBlocks(), std::nullopt));
  EXPECT_TRUE(Lacks(silent.Match(Tokens(1, 12)), UnknownProperty::kKinds));
  EXPECT_TRUE(Lacks(silent.Match(Tokens(1, 20)), UnknownProperty::kKinds));
  ContentWorker telling;
  telling.Apply(ThreeBlocks());
  EXPECT_FALSE(Lacks(telling.Match(Tokens(1, 12)), UnknownProperty::kKinds));
  ContentWorker registered({Full(4)});
  registered.Apply(OfKind(ThreeBlocks(), std::nullopt));
  EXPECT_EQ(registered.Match(Tokens(1, 12)).unknown, 0u);
}

// The engine's hit is limited by a group whose rule the router does not know.
TEST(UnknownProperties, AGroupOfAnUnknownKindLeavesTheKindsUnknown) {
  ContentWorker worker;
  worker.Apply(ThreeBlocks(), OfKind(ThreeBlocks(1), "ring_attention"));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kKinds));
}

TEST(UnknownProperties, OneStoreWithTheKindIsEnough) {
  ContentWorker worker;
  worker.Apply(OfKind(ThreeBlocks(), std::nullopt));
  worker.Apply(StoreTokens({Hash(4)}, Tokens(13, 4), Hash(3)));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kKinds));
}

TEST(UnknownProperties, NothingIsUnknownIfNoBlockOfThePromptIsHeld) {
  ContentWorker worker;
  worker.Apply(OfKind(ThreeBlocks(), std::nullopt), OfKind(ThreeBlocks(1), "sliding_window"));
  EXPECT_EQ(worker.Match(Tokens(500, 12)).unknown, 0u);
  EXPECT_EQ(worker.MatchWhole(Tokens(500, 12)).unknown, 0u);
}

// An engine whose groups all have chunked attention reuses whole chunks without any block.
TEST(UnknownProperties, BeforeTheFirstStoreTheGroupsMayHaveChunkedAttention) {
  ContentWorker worker;
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kGroups));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 20)), UnknownProperty::kGroups));
  worker.Apply(ThreeBlocks());
  EXPECT_EQ(worker.Match(Tokens(500, 12)).unknown, 0u);
  ContentWorker registered({Full(4)});
  EXPECT_EQ(registered.Match(Tokens(1, 20)).unknown, 0u);
}

TEST(UnknownProperties, AWindowIsKnownFromTheStreamOrTheRegistration) {
  const BlockStored store = OfKind(ThreeBlocks(), "sliding_window");
  ContentWorker silent;
  silent.Apply(store);
  EXPECT_TRUE(Lacks(silent.Match(Tokens(1, 20)), UnknownProperty::kWindow));
  ContentWorker telling;
  telling.Apply(OfKind(ThreeBlocks(), "sliding_window", 5));
  EXPECT_FALSE(Lacks(telling.Match(Tokens(1, 20)), UnknownProperty::kWindow));
  ContentWorker registered({Window(5, 4)});
  registered.Apply(store);
  EXPECT_EQ(registered.Match(Tokens(1, 20)).unknown, 0u);
}

TEST(UnknownProperties, AnUnknownWindowDoesNotMatterForAFullHit) {
  ContentWorker worker;
  worker.Apply(OfKind(ThreeBlocks(), "sliding_window"));
  ASSERT_EQ(worker.Match(Tokens(1, 12)).hit, HitKind::kFull);
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kWindow));
}

TEST(UnknownProperties, AChunkSizeIsKnownFromTheRegistrationOnly) {
  const BlockStored store = OfKind(ThreeBlocks(), "chunked_local_attention");
  ContentWorker silent;
  silent.Apply(store);
  EXPECT_TRUE(Lacks(silent.Match(Tokens(1, 20)), UnknownProperty::kChunkSize));
  ASSERT_EQ(silent.Match(Tokens(1, 12)).hit, HitKind::kFull);
  EXPECT_FALSE(Lacks(silent.Match(Tokens(1, 12)), UnknownProperty::kChunkSize));
  // A group with chunked attention can serve tokens whose blocks it does not hold.
  EXPECT_TRUE(Lacks(silent.Match(Tokens(500, 12)), UnknownProperty::kChunkSize));
  ContentWorker told({}, {.chunk_size = 8});
  told.Apply(store);
  EXPECT_FALSE(Lacks(told.Match(Tokens(1, 20)), UnknownProperty::kChunkSize));
  ContentWorker registered({Chunked(8, 4)});
  registered.Apply(store);
  EXPECT_EQ(registered.Match(Tokens(1, 20)).unknown, 0u);
}

TEST(UnknownProperties, ARegisteredChunkSizeIsUsed) {
  ContentWorker worker({}, {.chunk_size = 8});
  worker.Apply(OfKind(StoreTokens({Hash(3)}, Tokens(9, 4), Hash(2)), "chunked_local_attention"));
  worker.Apply(OfKind(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)), "chunked_local_attention"),
               Remove({Hash(1), Hash(2)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12) << "the chunk of the last block begins at token 8";
}

// A chunk consists of whole blocks.
TEST(UnknownProperties, AChunkSizeThatIsNoMultipleOfTheBlockSizeIsNotUsed) {
  for (const int64_t size : {2, 6}) {
    ContentWorker worker({}, {.chunk_size = size});
    worker.Apply(OfKind(ThreeBlocks(), "chunked_local_attention"));
    EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 20)), UnknownProperty::kChunkSize)) << size;
    EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12) << size;
  }
}

TEST(UnknownProperties, FurtherGroupsCouldOnlyShortenAHit) {
  ContentWorker worker;
  worker.Apply(ThreeBlocks());
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kGroups));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 20)), UnknownProperty::kGroups));
  worker.Apply(Remove({Hash(1)}));
  ASSERT_EQ(worker.Reusable(Tokens(1, 12)), 0);
  EXPECT_EQ(worker.Match(Tokens(1, 12)).unknown, 0u);
}

// vLLM drops a block only in the groups with a layer of the draft head. Here, this is the group of
// full attention. If the window group dropped a block too, the hit would be 0.
TEST(UnknownProperties, OfDifferentGroupsOnlyTheRegistrationShowsTheGroupsWithADraftHead) {
  const auto match = [](std::vector<GroupSpec> groups, WorkerConfig config) {
    ContentWorker worker(std::move(groups), std::move(config));
    const BlockStored all = StoreTokens(Hashes(1, 6), Tokens(1, 24));
    BlockStored window = OfKind(all, "sliding_window", 9);
    window.group_idx = 1;
    worker.Apply(all, window, Remove(Hashes(1, 3), 1), Remove({Hash(6)}, 1));
    return worker.Match(Tokens(1, 24));
  };
  const WorkerMatch told = match({Eagle(Full(4)), Window(9, 4)}, {});
  EXPECT_EQ(told.gpu_tokens, 20);
  EXPECT_EQ(told.unknown, 0u);
  const WorkerMatch learned = match({}, {.eagle = true});
  EXPECT_EQ(learned.gpu_tokens, 0);
  EXPECT_TRUE(Lacks(learned, UnknownProperty::kEagle));
  EXPECT_FALSE(Lacks(match({}, {.eagle = false}), UnknownProperty::kEagle));
}

TEST(UnknownProperties, EqualGroupsDropABlockTogether) {
  ContentWorker worker({}, {.eagle = true});
  worker.Apply(ThreeBlocks(0), ThreeBlocks(1));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kEagle));
}

TEST(UnknownProperties, ADraftHeadIsKnownFromTheRegistrationOrRuledOutByLookahead) {
  const auto lacks = [](WorkerConfig config) {
    ContentWorker worker({}, std::move(config));
    worker.Apply(ThreeBlocks());
    return Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kEagle);
  };
  EXPECT_TRUE(lacks({}));
  EXPECT_FALSE(lacks({.eagle = false}));
  EXPECT_FALSE(lacks({.eagle = true}));
  ContentWorker ahead({}, {.hash_lookahead_tokens = 1});
  ahead.Apply(StoreFull(Hashes(1, 3), 0, 4));
  EXPECT_FALSE(Lacks(ahead.index().Match(Hashes(1, 3), 4, 13).at(0), UnknownProperty::kEagle));
}

TEST(UnknownProperties, ARegisteredDraftHeadDropsABlock) {
  ContentWorker worker({}, {.eagle = true});
  worker.Apply(ThreeBlocks());
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 8);
  ContentWorker without({}, {.eagle = false});
  without.Apply(ThreeBlocks());
  EXPECT_EQ(without.Reusable(Tokens(1, 12)), 12);
}

TEST(UnknownProperties, ReplayIsKnownOrRuledOutByAHitOfAtMostThatLength) {
  const auto match = [](WorkerConfig config, const char* kind, std::vector<GroupSpec> groups = {}) {
    ContentWorker worker(std::move(groups), std::move(config));
    worker.Apply(OfKind(ThreeBlocks(), kind));
    return worker.Match(Tokens(1, 12));
  };
  EXPECT_TRUE(Lacks(match({}, "mla_attention"), UnknownProperty::kReplay));
  EXPECT_FALSE(Lacks(match({.replay_tokens = 0}, "mla_attention"), UnknownProperty::kReplay));
  EXPECT_TRUE(Lacks(match({}, "full_attention"), UnknownProperty::kReplay));
  EXPECT_FALSE(Lacks(match({.replay_tokens = 8}, "mla_attention"), UnknownProperty::kReplay));
  EXPECT_EQ(match({}, "mla_attention", {Mla()}).unknown, 0u);
  ContentWorker worker;
  worker.Apply(OfKind(ThreeBlocks(), "mla_attention"), Remove({Hash(1)}));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kReplay))
      << "the hit has 0 tokens";
  // The stream shows a hit of 8 tokens, but no hit of 4.
  ContentWorker showing;
  showing.Apply(ThreeBlocks(), StoreTokens({Hash(9)}, Tokens(90, 4), Hash(2)));
  EXPECT_FALSE(Lacks(showing.Match(Tokens(1, 12)), UnknownProperty::kReplay));
  EXPECT_FALSE(Lacks(showing.Match(Tokens(1, 8)), UnknownProperty::kReplay));
  EXPECT_TRUE(Lacks(showing.Match(Tokens(1, 4)), UnknownProperty::kReplay));
}

TEST(UnknownProperties, TheReleaseMattersIfABlockIsDroppedAtTheEndOfThePrompt) {
  const std::vector<GroupSpec> groups = {Eagle(Full(4)), Eagle(Window(5, 4))};
  const auto apply = [](ContentWorker& worker) {
    worker.Apply(ThreeBlocks(), OfKind(ThreeBlocks(1), "sliding_window", 5));
  };
  ContentWorker worker(groups);
  apply(worker);
  EXPECT_TRUE(Lacks(worker.MatchWhole(Tokens(1, 12)), UnknownProperty::kRelease));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kRelease))
      << "the prompt ends inside a block";
  for (const EngineRules rules : {EngineRules::kMain2026August, EngineRules::kV032}) {
    ContentWorker told(groups, {.rules = rules});
    apply(told);
    EXPECT_EQ(told.MatchWhole(Tokens(1, 12)).unknown, 0u);
  }
  ContentWorker without_drop({Full(4), Window(5, 4)});
  apply(without_drop);
  EXPECT_EQ(without_drop.MatchWhole(Tokens(1, 12)).unknown, 0u);
  ContentWorker alone({Eagle(Full(4))});
  alone.Apply(ThreeBlocks());
  EXPECT_EQ(alone.MatchWhole(Tokens(1, 12)).unknown, 0u);
  ContentWorker learned({}, {.eagle = true});
  apply(learned);
  EXPECT_TRUE(Lacks(learned.MatchWhole(Tokens(1, 12)), UnknownProperty::kRelease));
}

// From v0.32 on, a lookup goes one unit further. The index uses a release that the stream shows
// until the engine restarts. A registered release has priority.
TEST(UnknownProperties, TheReleaseThatAStreamShowsIsUsed) {
  const std::vector<GroupSpec> groups = {Eagle(Full(4)), Eagle(Window(5, 4))};
  const auto apply = [](ContentWorker& worker) {
    worker.Apply(ThreeBlocks(), OfKind(ThreeBlocks(1), "sliding_window", 5));
  };
  ContentWorker worker(groups);
  apply(worker);
  const int64_t before = worker.MatchWhole(Tokens(1, 12)).gpu_tokens;
  worker.index().LearnRules(kWorker, EngineRules::kV033);
  const WorkerMatch shown = worker.MatchWhole(Tokens(1, 12));
  EXPECT_EQ(shown.unknown, 0u);
  ContentWorker told(groups, {.rules = EngineRules::kV033});
  apply(told);
  EXPECT_EQ(shown.gpu_tokens, told.MatchWhole(Tokens(1, 12)).gpu_tokens);
  EXPECT_GT(shown.gpu_tokens, before);
  worker.index().RestartWorker(kWorker);
  apply(worker);
  EXPECT_TRUE(Lacks(worker.MatchWhole(Tokens(1, 12)), UnknownProperty::kRelease));
  ContentWorker older(groups, {.rules = EngineRules::kMain2026August});
  apply(older);
  older.index().LearnRules(kWorker, EngineRules::kV033);
  EXPECT_EQ(older.MatchWhole(Tokens(1, 12)).gpu_tokens, before);
}

// In releases without partial hits, each hit ends at the end of a block.
TEST(UnknownProperties, HitsInsideMambaBlocksMatterIfTheHitEndsThere) {
  const auto mamba = [](BlockStored event) {
    event.group_idx = 1;
    return OfKind(std::move(event), "mamba");
  };
  ContentWorker worker;
  worker.Apply(StoreTokens(Hashes(1, 2), Tokens(1, 16), std::nullopt, 0, 8),
               mamba(StoreTokens(Hashes(1, 2), Tokens(1, 16), std::nullopt, 1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 16)), 16);
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 16)), UnknownProperty::kAlignment))
      << "the hit ends with a block";
  // Full attention stores the end of a prompt even if no hit ends there.
  worker.Apply(StoreTokens({Hash(3)}, Tokens(17, 4), Hash(2)));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 16)), UnknownProperty::kAlignment))
      << "the store of a prompt's end changes nothing";
}

// For a draft head, the lookup drops a unit if hits may end inside blocks, and a block otherwise.
TEST(UnknownProperties, HitsInsideMambaBlocksMatterBesideADraftHead) {
  WorkerConfig config;
  config.eagle = true;
  ContentWorker worker({}, config);
  worker.Apply(StoreTokens(Hashes(1, 2), Tokens(1, 16), std::nullopt, 0, 8),
               OfKind(StoreTokens(Hashes(1, 2), Tokens(1, 16), std::nullopt, 1, 8), "mamba"));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 16)), UnknownProperty::kAlignment));
}

TEST(UnknownProperties, AMambaGroupWithOnlySmallStoresMayHaveLargerBlocks) {
  ContentWorker worker;
  worker.Apply(StoreTokens(Hashes(1, 2), Tokens(1, 16), std::nullopt, 0, 8),
               OfKind(StoreTokens({Hash(7)}, Tokens(1, 4), std::nullopt, 1), "mamba"));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 16)), UnknownProperty::kBlockSize));
  worker.Apply(OfKind(StoreTokens({Hash(1)}, Tokens(1, 8), std::nullopt, 1, 8), "mamba"));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 16)), UnknownProperty::kBlockSize));
}

// Blocks 1 and 2 may be one larger block of full attention. The stream has only stores of the ends
// of prompts.
TEST(UnknownProperties, FullAttentionWithOnlyEndsOfPromptsMayHaveLargerBlocks) {
  const auto state = OfKind(StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 1, 8), "mamba");
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), state);
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kBlockSize));
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kBlockSize))
      << "the end of a prompt is stored alone";
  ContentWorker larger;
  larger.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), state);
  larger.Apply(StoreTokens({Hash(3)}, Tokens(1, 16), std::nullopt, 0, 16));
  EXPECT_FALSE(Lacks(larger.Match(Tokens(1, 12)), UnknownProperty::kBlockSize));
  ContentWorker registered({Full(4), {.kind = SpecKind::kMamba, .block_size = 8}});
  registered.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), state);
  EXPECT_FALSE(Lacks(registered.Match(Tokens(1, 12)), UnknownProperty::kBlockSize));
}

// A snapshot joins the ends of two prompts, one of which begins with the other, in one store.
TEST(UnknownProperties, ASnapshotDoesNotShowTheBlockSizeOfFullAttention) {
  BlockStored ends = StoreFull({Hash(1), Hash(2)}, 0, 4);
  BlockStored state = StoreFull({Hash(2)}, 1, 8);
  ContentWorker worker;
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(ends, OfKind(state, "mamba"));
  worker.index().SwapHidden(kWorker);
  const std::vector<WorkerId> asked = {kWorker};
  const std::vector<BlockHash> chain = {Hash(1), Hash(2)};
  const auto match = [&] {
    return worker.index().Match({.hash_block_size = 4, .prompt_tokens = 12, .hashes = chain},
                                asked);
  };
  EXPECT_TRUE(Lacks(match().at(0), UnknownProperty::kBlockSize));
  worker.Apply(ends);
  EXPECT_FALSE(Lacks(match().at(0), UnknownProperty::kBlockSize));
}

TEST(UnknownProperties, EveryPropertyHasAName) {
  std::vector<std::string> names;
  for (int i = 0; i < kUnknownProperties; ++i) {
    names.emplace_back(UnknownPropertyName(static_cast<UnknownProperty>(1u << i)));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"kinds", "window", "chunk_size", "groups", "eagle",
                                             "replay", "release", "alignment", "block_size",
                                             "offload_rule", "load_end", "conflict"}));
}

TEST(UnknownProperties, TheRuleOfLoadsIsKnownFromTheRegistrationOnly) {
  const auto unknown_of_loads = [](const WorkerConfig& config) {
    ContentWorker worker({Full(4)}, config);
    worker.Apply(OnHost(ThreeBlocks()));
    return worker.Match(Tokens(1, 12)).unknown_with_cpu;
  };
  EXPECT_EQ(unknown_of_loads({}), static_cast<uint32_t>(UnknownProperty::kOffloadRule));
  EXPECT_EQ(unknown_of_loads({.offload_rule = OffloadRule::kConnector}), 0u);
}

TEST(LearnedLookahead, IsThatOfTheLastStore) {
  ContentWorker worker;
  worker.Apply(ThreeBlocks());
  EXPECT_EQ(worker.index().ShapeOf(kWorker).lookahead, 0);
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.lookahead = LookaheadTokens{.width = 2, .token_ids = {5, 6}};
  worker.Apply(store);
  EXPECT_EQ(worker.index().ShapeOf(kWorker).lookahead, 2);
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 6), {}, 2), UnknownProperty::kEagle));
}

TEST(LearnedLookahead, EndsTheDropOfGroupsWithADraftHead) {
  ContentWorker worker({Eagle(Full(4))});
  BlockStored store = StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8));
  store.lookahead = LookaheadTokens{.width = 1, .token_ids = {5, 9}};
  worker.Apply(store);
  EXPECT_EQ(worker.Reusable(Tokens(1, 9), {}, 1), 8);
  EXPECT_EQ(worker.MatchWhole(Tokens(1, 9), {}, 1).gpu_tokens, 8);
}

TEST(LearnedLookahead, IsForgottenWithTheEngine) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.lookahead = LookaheadTokens{.width = 2, .token_ids = {5, 6}};
  worker.Apply(store);
  worker.index().RestartWorker(kWorker);
  EXPECT_EQ(worker.index().ShapeOf(kWorker).lookahead, 0);
}

TEST(LearnedLookahead, BeyondTheBoundIsNotLearned) {
  ContentWorker worker;
  BlockStored store = StoreTokens({Hash(1)}, Tokens(1, 4));
  store.lookahead =
      LookaheadTokens{.width = kMaxLookahead + 1, .token_ids = Tokens(5, kMaxLookahead + 1)};
  worker.Apply(store);
  EXPECT_EQ(worker.index().ShapeOf(kWorker).lookahead, 0);
  EXPECT_EQ(worker.counters().bad_stores, 1u);
}

BlockStored StoreWithLookahead(BlockStored event, std::vector<TokenId> behind) {
  event.lookahead = LookaheadTokens{.width = 1, .token_ids = std::move(behind)};
  return event;
}

// The index does not apply an event that contradicts the groups.
TEST(UnknownProperties, ARefusedStoreIsAConflictUntilTheGpuIsCleared) {
  const BlockStored refused[] = {
      OfKind(ThreeBlocks(1), "sliding_window", 5),
      StoreTokens({Hash(9)}, Tokens(100, 8), std::nullopt, 0, 8),
  };
  for (const BlockStored& store : refused) {
    ContentWorker worker({Full(4)});
    worker.Apply(ThreeBlocks());
    EXPECT_EQ(worker.Match(Tokens(1, 12)).unknown, 0u);
    worker.Apply(store);
    EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
    EXPECT_TRUE(Lacks(worker.Match(Tokens(500, 12)), UnknownProperty::kConflict))
        << "the engine may hold blocks of the refused store";
    worker.Apply(AllBlocksCleared{});
    worker.Apply(ThreeBlocks());
    EXPECT_EQ(worker.Match(Tokens(1, 12)).unknown, 0u);
  }
}

TEST(UnknownProperties, AStoreThatContradictsALearnedGroupIsAConflictUntilARestart) {
  ContentWorker worker;
  worker.Apply(OfKind(ThreeBlocks(), "sliding_window", 5));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
  worker.Apply(OfKind(ThreeBlocks(), "sliding_window", 9));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
  worker.index().RestartWorker(kWorker);
  worker.Apply(OfKind(ThreeBlocks(), "sliding_window", 9));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
}

TEST(UnknownProperties, ARefusedRemoveIsAConflict) {
  ContentWorker worker({Full(4)});
  worker.Apply(ThreeBlocks(), Remove({Hash(1)}, 1));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
}

TEST(UnknownProperties, ARefusedStoreOfALowerTierIsAConflictUntilThisTierIsCleared) {
  ContentWorker worker({Full(4)});
  worker.Apply(OnHost(ThreeBlocks(1)));
  worker.Apply(AllBlocksCleared{});
  worker.Apply(ThreeBlocks());
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
  worker.Apply(AllBlocksCleared{.medium = kMediumCpu});
  EXPECT_EQ(worker.Match(Tokens(1, 12)).unknown, 0u);
}

TEST(UnknownProperties, ASnapshotReplacesTheBlocksThatARefusedStoreConcerns) {
  ContentWorker worker({Full(4)});
  const auto take_snapshot = [&worker](int64_t group) {
    worker.index().BeginHidden(kWorker);
    worker.ApplyHidden(StoreFull(Hashes(1, 3), group, 4));
    worker.index().SwapHidden(kWorker);
  };
  worker.Apply(ThreeBlocks(), ThreeBlocks(1));
  ASSERT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
  take_snapshot(0);
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
  take_snapshot(1);
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kConflict));
}

TEST(LearnedLookahead, TheLookaheadOfStoresReplacesTheRegisteredOne) {
  const auto first_block = StoreTokens({Hash(1)}, Tokens(1, 4));
  const auto answer = [](int64_t registered, const BlockStored& store, int64_t shown) {
    ContentWorker worker({Full(4)}, {.hash_lookahead_tokens = registered});
    worker.Apply(store);
    EXPECT_EQ(worker.index().ShapeOf(kWorker).lookahead, shown);
    const WorkerMatch match = worker.MatchWhole(Tokens(1, 7), {}, shown);
    EXPECT_EQ(match.gpu_tokens, 4);
    return match;
  };
  EXPECT_EQ(answer(1, StoreWithLookahead(first_block, {5}), 1).unknown, 0u);
  EXPECT_EQ(answer(0, StoreWithLookahead(first_block, {5}), 1).unknown, 0u);
  EXPECT_TRUE(
      Lacks(answer(2, StoreWithLookahead(first_block, {5}), 1), UnknownProperty::kConflict));
  EXPECT_TRUE(Lacks(answer(1, first_block, 0), UnknownProperty::kConflict));
}

// vLLM's connector describes blocks without the tokens after them.
TEST(LearnedLookahead, StoresOfLowerTiersWithoutLookaheadNameNothing) {
  ContentWorker worker;
  worker.Apply(StoreWithLookahead(StoreTokens({Hash(1)}, Tokens(1, 4)), {5}));
  worker.Apply(OnHost(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8))));
  EXPECT_TRUE(worker.Knows(Hash(1))) << "the store on the GPU names the block";
  EXPECT_FALSE(worker.Knows(Hash(2)));
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kHiddenContent), 1u);
  EXPECT_EQ(worker.counters().ambiguous, 0u);
  EXPECT_TRUE(worker.Match(Tokens(1, 8), {}, 1).has_unnamed);
  worker.Apply(OnHost(StoreWithLookahead(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)), {-1})));
  EXPECT_TRUE(worker.Knows(Hash(2))) << "the store has the key form of the GPU";
}

TEST(LearnedLookahead, StoresOfLowerTiersWithoutLookaheadLeaveBlocksOfTheGpuUnnamed) {
  ContentWorker worker({Window(5, 4)}, {.hash_lookahead_tokens = 1});
  const auto windowed = [](BlockStored event) {
    return OfKind(std::move(event), "sliding_window", 5);
  };
  worker.Apply(windowed(StoreWithLookahead(StoreTokens({Hash(2)}, Tokens(1, 8)), {9})));
  worker.Apply(OnHost(windowed(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)))));
  EXPECT_FALSE(worker.Knows(Hash(2))) << "a sparse store does not show which block its hash names";
  EXPECT_EQ(worker.counters().unnamed_gpu, 1u);
}

TEST(LearnedLookahead, NamesOfALowerTierWithTheRegisteredLookaheadAreKept) {
  ContentWorker worker({}, {.hash_lookahead_tokens = 1});
  worker.Apply(OnHost(StoreWithLookahead(StoreTokens({Hash(1)}, Tokens(1, 4)), {5})));
  ASSERT_TRUE(worker.Knows(Hash(1)));
  worker.Apply(StoreWithLookahead(StoreTokens({Hash(2)}, Tokens(100, 4)), {104}));
  EXPECT_FALSE(worker.Match(Tokens(1, 4), {}, 1).ambiguous);
}

TEST(LearnedLookahead, StoresOfLowerTiersThatWaitForTheirParentNameNothingEither) {
  ContentWorker worker;
  worker.Apply(OnHost(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1))));
  worker.Apply(StoreWithLookahead(StoreTokens({Hash(1)}, Tokens(1, 4)), {5}));
  EXPECT_TRUE(worker.Knows(Hash(1)));
  EXPECT_FALSE(worker.Knows(Hash(2)));
}

TEST(LearnedLookahead, NamesOfALowerTierWithoutLookaheadMakeAnswersUncertain) {
  const auto first = OnHost(StoreTokens({Hash(1)}, Tokens(1, 4)));
  const auto second = StoreWithLookahead(StoreTokens({Hash(2)}, Tokens(100, 4)), {104});
  ContentWorker worker;
  worker.Apply(first);
  EXPECT_FALSE(worker.Match(Tokens(1, 4)).ambiguous);
  worker.Apply(second);
  EXPECT_TRUE(worker.Match(Tokens(1, 4), {}, 1).ambiguous);
  worker.index().RestartWorker(kWorker);
  worker.Apply(second);
  EXPECT_FALSE(worker.Match(Tokens(100, 4), {}, 1).ambiguous);

  ContentWorker of_snapshot;
  of_snapshot.Apply(first);
  of_snapshot.index().BeginHidden(kWorker);
  of_snapshot.ApplyHidden(OnHost(StoreFull({Hash(1)}, 0, 4)));
  of_snapshot.index().SwapHidden(kWorker);
  of_snapshot.Apply(second);
  EXPECT_TRUE(of_snapshot.Match(Tokens(1, 4), {}, 1).ambiguous);
  of_snapshot.index().BeginHidden(kWorker);
  of_snapshot.index().SwapHidden(kWorker);
  EXPECT_TRUE(of_snapshot.Match(Tokens(1, 4), {}, 1).ambiguous);
}

}  // namespace
}  // namespace kvcast::testing
