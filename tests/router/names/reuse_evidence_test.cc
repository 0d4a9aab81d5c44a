// Stores that prove the reuse of a block show that the engine drops no block at the end of a hit.
// So they rule out some of the unknown properties of a worker.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

// Parent stores the prompt 1 ... 4. Child stores a continuation of this prompt.
BlockStored Parent() { return StoreTokens({Hash(1)}, Tokens(1, 4)); }
BlockStored Child(int64_t number, int64_t group = 0) {
  return StoreTokens({Hash(static_cast<uint64_t>(100 + number))}, Tokens(100 * number, 4), Hash(1),
                     group);
}
bool ShowsReuse(const ContentWorker& worker) {
  const WorkerMatch match = worker.Match(Tokens(1, 4));
  EXPECT_EQ(Lacks(match, UnknownProperty::kGroups), Lacks(match, UnknownProperty::kEagle));
  return !Lacks(match, UnknownProperty::kGroups);
}

TEST(ReuseEvidence, AnotherChildOfABlockThatWasNotStoredAgainShowsNoDrop) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(1));
  EXPECT_FALSE(ShowsReuse(worker));
  worker.Apply(Child(2));
  EXPECT_TRUE(ShowsReuse(worker));
  EXPECT_EQ(worker.Match(Tokens(1, 4)).unknown, 0u);
}

// For a draft head, a lookup of states drops no block on the GPU, but it drops a chunk in host
// memory.
TEST(ReuseEvidence, OfAGroupOfStatesDoesNotApplyToLoads) {
  const auto loads_lack_eagle = [](const WorkerConfig& config, const std::string& kind) {
    const auto second = [&kind](BlockStored event) {
      event.group_idx = 1;
      return OfKind(std::move(event), kind);
    };
    ContentWorker worker({}, config);
    const BlockStored other = StoreTokens({Hash(90)}, Tokens(900, 4));
    worker.Apply(other, second(other));
    worker.Apply(Parent(), second(Parent()));
    worker.Apply(Child(1), second(Child(1)));
    worker.Apply(Child(2), second(Child(2)));
    worker.Apply(OnHost(Parent()));
    const WorkerMatch match = worker.Match(Tokens(1, 4));
    EXPECT_FALSE(Lacks(match, UnknownProperty::kEagle));
    return (match.unknown_with_cpu & static_cast<uint32_t>(UnknownProperty::kEagle)) != 0;
  };
  EXPECT_TRUE(loads_lack_eagle({.offload_rule = OffloadRule::kOffloadScheduler}, "mamba"));
  EXPECT_TRUE(loads_lack_eagle({.offload_rule = OffloadRule::kConnector}, "mamba"));
  EXPECT_FALSE(loads_lack_eagle({.offload_rule = OffloadRule::kMirroredPool}, "mamba"))
      << "the rule of the GPU's lookup applies";
  EXPECT_FALSE(
      loads_lack_eagle({.offload_rule = OffloadRule::kConnector, .eagle = false}, "mamba"));
  EXPECT_FALSE(loads_lack_eagle({.offload_rule = OffloadRule::kConnector}, "full_attention"));
}

TEST(ReuseEvidence, TheSameChildShowsNothing) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(1), Child(1));
  EXPECT_FALSE(ShowsReuse(worker));
}

// Each request that stored the block may have stored one child of the block.
TEST(ReuseEvidence, MoreChildrenThanCopiesShowNoDrop) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(1), Parent(), Child(2));
  EXPECT_FALSE(ShowsReuse(worker));
  worker.Apply(Remove({Hash(1)}));
  EXPECT_FALSE(ShowsReuse(worker)) << "even with one copy left";
  worker.Apply(Child(3));
  EXPECT_TRUE(ShowsReuse(worker));
}

TEST(ReuseEvidence, AChildThatWasHeldBeforeShowsNothing) {
  ContentWorker worker;
  BlockStored parent = Parent();
  parent.group_idx = 1;
  worker.Apply(Parent(), parent, Child(1), Child(2, 1), Child(2));
  EXPECT_TRUE(ShowsReuse(worker)) << "in one batch, the stores belong to one request";
  ContentWorker other;
  other.Apply(Parent(), parent, Child(1), Child(2, 1));
  other.Apply(Child(2));
  EXPECT_FALSE(ShowsReuse(other));
}

TEST(ReuseEvidence, AChildThatWasHeldAMomentAgoShowsNothing) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(2));
  worker.Apply(Remove({Hash(102)}), Child(1));
  EXPECT_TRUE(ShowsReuse(worker));
  ContentWorker other;
  other.Apply(Parent(), Child(2));
  other.Apply(Remove({Hash(102)}), Child(2));
  EXPECT_FALSE(ShowsReuse(other));
}

TEST(ReuseEvidence, ABlockThatWasRemovedAndStoredAgainShowsNothing) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(1), Remove({Hash(1)}));
  worker.Apply(Parent(), Child(2));
  ASSERT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  EXPECT_FALSE(ShowsReuse(worker));
}

// An engine may evict a block although the request that extends the block still runs.
TEST(ReuseEvidence, ABlockThatAnotherRequestStoredAgainShowsNothing) {
  ContentWorker worker;
  worker.Apply(Parent());
  worker.Apply(Remove({Hash(1)}));
  worker.Apply(StoreTokens({Hash(1), Hash(101)}, Tokens(1, 8)));
  worker.Apply(Child(2));
  EXPECT_FALSE(ShowsReuse(worker));
}

TEST(ReuseEvidence, OtherTiersShowNothing) {
  ContentWorker worker;
  BlockStored child = Child(2);
  child.medium = "CPU";
  worker.Apply(Parent(), Child(1), child);
  EXPECT_FALSE(ShowsReuse(worker));
}

TEST(ReuseEvidence, AStoreThatNamesFewOfItsBlocksShowsNothing) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(1));
  worker.Apply(StoreTokens({Hash(102)}, Tokens(200, 8), Hash(1)));
  EXPECT_FALSE(ShowsReuse(worker));
}

TEST(ReuseEvidence, OneGroupShowsReuseForAllGroupsWithEqualBlocks) {
  ContentWorker worker;
  const auto windowed = [](BlockStored event) {
    return OfKind(std::move(event), "sliding_window", 9);
  };
  BlockStored parent = Parent();
  parent.group_idx = 1;
  worker.Apply(Parent(), windowed(parent), Child(1), windowed(Child(1, 1)));
  EXPECT_FALSE(ShowsReuse(worker));
  worker.Apply(Child(2));
  EXPECT_TRUE(ShowsReuse(worker));
}

// A worker with two groups: group 0 has blocks of 4 tokens, group 1 has blocks of 8.
struct TwoSizes {
  ContentWorker worker;

  static BlockStored Large(uint64_t hash, std::vector<TokenId> tokens) {
    return StoreTokens({Hash(hash)}, std::move(tokens), Hash(31), 1, 8);
  }
  TwoSizes() {
    // The index must learn the sizes before the first block that is evidence.
    worker.Apply(StoreTokens({Hash(90)}, Tokens(900, 4)),
                 StoreTokens({Hash(91)}, Tokens(920, 8), std::nullopt, 1, 8));
    worker.Apply(StoreTokens(Hashes(1, 2), Tokens(1, 8)),
                 StoreTokens({Hash(31)}, Tokens(1, 8), std::nullopt, 1, 8));
    worker.Apply(StoreTokens({Hash(11), Hash(12)}, Tokens(100, 8), Hash(2)),
                 Large(32, Tokens(100, 8)));
  }
  bool Shows() const {
    const WorkerMatch match = worker.Match(Tokens(1, 8));
    EXPECT_EQ(match.gpu_tokens, 8);
    return !Lacks(match, UnknownProperty::kGroups) && !Lacks(match, UnknownProperty::kEagle);
  }
};

TEST(ReuseEvidence, ALargerBlockWithANewBeginningShowsNoDrop) {
  TwoSizes sizes;
  sizes.worker.Apply(TwoSizes::Large(33, Tokens(200, 8)));
  EXPECT_TRUE(sizes.Shows());
}

// Blocks 32 and 33 begin with the same smaller block. An engine with a draft head may have dropped
// that smaller block.
TEST(ReuseEvidence, ALargerBlockWithAKnownBeginningShowsNothing) {
  TwoSizes sizes;
  std::vector<TokenId> tokens = Tokens(100, 4);
  for (const TokenId token : Tokens(300, 4)) tokens.push_back(token);
  sizes.worker.Apply(TwoSizes::Large(33, tokens));
  EXPECT_FALSE(sizes.Shows());
}

// After a store without tokens, the index does not know the beginnings of larger blocks.
TEST(ReuseEvidence, BesideBlocksWithoutTokensLargerBlocksShowNothing) {
  TwoSizes sizes;
  BlockStored silent = StoreTokens({Hash(50)}, Tokens(500, 4), Hash(2));
  silent.token_ids.reset();
  sizes.worker.Apply(silent);
  sizes.worker.Apply(TwoSizes::Large(33, Tokens(200, 8)));
  EXPECT_FALSE(sizes.Shows());
}

// The earlier blocks were stored before the index learned that hits may end inside blocks.
TEST(ReuseEvidence, ChildrenOfABlockThatIsOlderThanTheSmallestSizeShowNothing) {
  PrefixIndex index;
  WorkerConfig config;
  config.name = "worker";
  ASSERT_TRUE(index.AddWorker(kWorker, config).ok());
  const auto large = [](uint64_t hash, TokenId first) {
    return StoreTokens({Hash(hash)}, Tokens(first, 8), Hash(31), 0, 8);
  };
  index.Apply(kWorker,
              Batch(StoreTokens({Hash(31)}, Tokens(1, 8), std::nullopt, 0, 8), large(32, 100)));
  index.Apply(kWorker, Batch(StoreTokens(Hashes(1, 2), Tokens(1, 8), std::nullopt, 1)));
  index.Apply(kWorker, Batch(large(33, 200)));
  const std::vector<ContentKey> contents = PromptContents(index.keys(), Tokens(1, 9), 4, 0, {});
  const PromptBlocks prompt{
      .hash_block_size = 4, .prompt_tokens = 9, .lookahead = 0, .contents = contents, .hashes = {}};
  const WorkerMatch match = index.Match(prompt, {&kWorker, 1})[0];
  ASSERT_EQ(match.gpu_tokens, 8);
  EXPECT_TRUE(Lacks(match, UnknownProperty::kEagle));
}

// The two blocks after block 2 belong to different groups and to one prompt.
TEST(ReuseEvidence, ASmallerBlockIsNotASiblingOfALargerBlock) {
  ContentWorker worker;
  worker.Apply(StoreTokens(Hashes(1, 2), Tokens(1, 8)),
               StoreTokens({Hash(2)}, Tokens(1, 8), std::nullopt, 1, 8));
  worker.Apply(StoreTokens({Hash(3), Hash(4)}, Tokens(9, 8), Hash(2)),
               StoreTokens({Hash(4)}, Tokens(9, 8), Hash(2), 1, 8));
  ASSERT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 8)), UnknownProperty::kGroups));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 8)), UnknownProperty::kEagle));
}

// A request stores the end of its prompt inside a block, and later the whole block.
TEST(ReuseEvidence, APrefixInsideABlockIsNotAChild) {
  WorkerConfig config;
  config.eagle = false;
  ContentWorker worker({}, config);
  const auto large = [](uint64_t hash, TokenId first, int64_t tokens) {
    return StoreTokens({Hash(hash)}, Tokens(first, tokens), Hash(31), 1, tokens);
  };
  const auto parents = [] {
    return std::pair(StoreTokens(Hashes(1, 2), Tokens(1, 8)),
                     StoreTokens({Hash(31)}, Tokens(1, 8), std::nullopt, 1, 8));
  };
  worker.Apply(parents().first, parents().second, large(32, 100, 8));
  worker.Apply(parents().first, parents().second, large(40, 200, 4), large(33, 200, 8));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 8)), UnknownProperty::kGroups));
  worker.Apply(large(34, 300, 8));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 8)), UnknownProperty::kGroups));
  EXPECT_EQ(worker.counters().bad_events, 0u);
}

// A window store may leave out blocks that its request stored elsewhere.
TEST(ReuseEvidence, BesideFullAttentionWindowsShowNothing) {
  ContentWorker worker;
  const auto windowed = [](BlockStored event) {
    event.group_idx = 1;
    return OfKind(std::move(event), "sliding_window", 9);
  };
  worker.Apply(Parent(), windowed(Parent()));
  worker.Apply(windowed(Child(1)));
  worker.Apply(windowed(Child(2)));
  EXPECT_FALSE(ShowsReuse(worker));
}

// If nothing is dropped, a second store of the same child comes from another request.
TEST(ReuseEvidence, WithoutADropACopyOfAChildShowsAHit) {
  WorkerConfig config;
  config.eagle = false;
  ContentWorker worker({}, config);
  worker.Apply(Parent(), Child(1));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 4)), UnknownProperty::kGroups));
  worker.Apply(Child(1));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 4)), UnknownProperty::kGroups));
}

// A group that announces no blocks may have blocks of 12 tokens. Then hits end at multiples of 12.
TEST(ReuseEvidence, AHitShowsTheEndsOfHitsAtItsMultiples) {
  ContentWorker worker;
  worker.Apply(StoreTokens(Hashes(1, 6), Tokens(1, 24)));
  worker.Apply(StoreTokens({Hash(50)}, Tokens(500, 4), Hash(3)));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 12)), UnknownProperty::kGroups));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 24)), UnknownProperty::kGroups));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 20)), UnknownProperty::kGroups));
  worker.Apply(StoreTokens({Hash(51)}, Tokens(600, 4), Hash(4)));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 20)), UnknownProperty::kGroups))
      << "hits end at multiples of 12 and at 16, so they end at multiples of 4";
}

// An engine may ignore shorter hits.
TEST(ReuseEvidence, AShorterHitIsShownByAShorterHit) {
  ContentWorker worker;
  const auto child = [](uint64_t hash, uint64_t parent, TokenId first) {
    return StoreTokens({Hash(hash)}, Tokens(first, 4), Hash(parent));
  };
  worker.Apply(StoreTokens(Hashes(1, 3), Tokens(1, 12)));
  worker.Apply(child(10, 2, 100));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 9)), UnknownProperty::kReplay));
  EXPECT_TRUE(Lacks(worker.Match(Tokens(1, 5)), UnknownProperty::kReplay));
  worker.Apply(child(11, 1, 200));
  EXPECT_FALSE(Lacks(worker.Match(Tokens(1, 5)), UnknownProperty::kReplay));
}

TEST(ReuseEvidence, IsKeptThroughLossesAndForgottenWithTheEngine) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(1), Child(2));
  worker.index().ClearWorker(kWorker);
  worker.Apply(Parent());
  EXPECT_TRUE(ShowsReuse(worker));
  worker.index().RestartWorker(kWorker);
  worker.Apply(Parent());
  EXPECT_FALSE(ShowsReuse(worker));
}

// Each request that stored the block before the snapshot may still store a child of the block.
TEST(ReuseEvidence, ChildrenOfBlocksOfASnapshotShowNothing) {
  ContentWorker worker;
  worker.index().BeginHidden(kWorker);
  worker.ApplyHidden(Parent(), Parent());
  worker.index().SwapHidden(kWorker);
  worker.Apply(Child(1));
  worker.Apply(Child(2));
  ASSERT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  EXPECT_FALSE(ShowsReuse(worker));
}

// The publisher's record does not show how often a block was stored.
TEST(ReuseEvidence, ARepairBetweenTheChildrenShowsNothing) {
  for (const bool repaired : {false, true}) {
    ContentWorker worker;
    worker.Apply(Parent(), Child(1));
    if (repaired) worker.index().NoteRecord(kWorker);
    worker.Apply(Child(2));
    ASSERT_EQ(worker.Reusable(Tokens(1, 4)), 4);
    EXPECT_EQ(ShowsReuse(worker), !repaired);
  }
}

// A block that was stored before a loss may have been stored again during the loss.
TEST(ReuseEvidence, ALossBetweenTheChildrenShowsNothing) {
  ContentWorker worker;
  worker.Apply(Parent(), Child(1));
  worker.index().ClearWorker(kWorker);
  worker.Apply(Child(2));
  worker.Apply(Parent());
  EXPECT_FALSE(ShowsReuse(worker));
}

}  // namespace
}  // namespace kvcast::testing
