// The cache follows the changes of vLLM v0.29 to v0.33, one case per change. The recorded runs
// cover more cases.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/hash/block_hash.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

CacheConfig Of033(std::vector<GroupSpec> groups, int64_t lookahead = 0) {
  CacheConfig config = Config(std::move(groups), 100);
  config.rules = EngineRules::kV033;
  config.chain_form = {ExtraKeyScheme::kTagged, lookahead};
  return config;
}

std::vector<BlockStored> StoresOf(TestEngine& engine) {
  std::vector<BlockStored> stores;
  for (const Event& event : engine.cache().TakeEvents()) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) stores.push_back(*stored);
  }
  return stores;
}

// A block is cached when the request has the lookahead tokens after the block. The event of the
// block contains these tokens.
TEST(Release033, ABlockWithLookaheadIsCachedOneTokenLater) {
  TestEngine engine(Of033({Full()}, 1));
  CacheRequest request = Request("0", Tokens(32));
  engine.Start(request);
  std::vector<BlockStored> stores = StoresOf(engine);
  ASSERT_EQ(stores.size(), 1u);
  EXPECT_EQ(stores[0].block_hashes.size(), 1u) << "no token follows the second block yet";
  EXPECT_EQ(stores[0].lookahead, (LookaheadTokens{1, {16}}));
  ASSERT_TRUE(engine.Decode(request, 7777));
  stores = StoresOf(engine);
  ASSERT_EQ(stores.size(), 1u);
  EXPECT_EQ(stores[0].block_hashes.size(), 1u);
  EXPECT_EQ(stores[0].lookahead, (LookaheadTokens{1, {7777}}));
}

// Two blocks with equal tokens but different tokens after them are different blocks.
TEST(Release033, ALookaheadHashCoversTheFollowingTokens) {
  TestEngine engine(Of033({Full()}, 1));
  CacheRequest first = Request("0", Tokens(40));
  engine.Start(first);
  CacheRequest same = Request("1", Tokens(33));
  EXPECT_EQ(engine.Lookup(same).tokens, 32);
  CacheRequest other = Request("2", Concat(Tokens(32), {9999}));
  EXPECT_EQ(engine.Lookup(other).tokens, 16);
}

// A hit ends at the last hash, even if a chunk that begins after that hash would need no block.
TEST(Release033, NoHitEndsBehindTheLastHash) {
  CacheRequest request = Request("0", Tokens(49));
  TestEngine without(Of033({Chunked(48)}));
  EXPECT_EQ(without.Lookup(request).tokens, 48);
  CacheRequest hashed = Request("1", Tokens(49));
  TestEngine engine(Of033({Chunked(48)}, 3));
  EXPECT_EQ(engine.Lookup(hashed).tokens, 0);
}

// The path of an adapter is part of the hash, but no event contains it.
TEST(Release033, TheLoraPathIsPartOfTheHash) {
  TestEngine engine(Of033({Full()}));
  const auto request = [](const char* id, const char* path) {
    CacheRequest made = Request(id, Tokens(33));
    made.hash_inputs.lora_name = "adapter";
    made.hash_inputs.lora_path = path;
    return made;
  };
  CacheRequest first = request("0", "/one");
  engine.Start(first);
  const std::vector<BlockStored> stores = StoresOf(engine);
  ASSERT_EQ(stores.size(), 1u);
  EXPECT_EQ(stores[0].lora_name, "adapter");
  ASSERT_TRUE(stores[0].extra_keys.has_value());
  EXPECT_EQ(stores[0].extra_keys->at(0), (ExtraKeys{ExtraKey{std::string("adapter")}}));
  CacheRequest again = request("1", "/one");
  EXPECT_EQ(engine.Lookup(again).tokens, 32);
  CacheRequest other = request("2", "/two");
  EXPECT_EQ(engine.Lookup(other).tokens, 0);
}

GroupSpec Replayed(int64_t window) {
  GroupSpec spec = Window(window);
  spec.prefix_cacheable = false;
  return spec;
}

// The window group announces no blocks. After a hit, the engine computes the window's tokens again.
TEST(Release033, BoundedReplayAdoptsAHitAndComputesItsEndAgain) {
  CacheConfig config = Of033({Full(), Replayed(32)});
  config.replay_tokens = 32;
  TestEngine engine(config);
  CacheRequest first = Request("0", Tokens(97));
  engine.Start(first);
  for (const BlockStored& stored : StoresOf(engine)) EXPECT_EQ(stored.group_idx, 0);
  CacheRequest second = Request("1", Tokens(97));
  const PrefixHit hit = engine.Lookup(second);
  EXPECT_EQ(hit.tokens, 96);
  EXPECT_EQ(hit.replay_tokens, 32);
  EXPECT_EQ(hit.computed_tokens(), 64);
  ASSERT_TRUE(engine.Allocate(second, {.hit = &hit}))
      << "a request may adopt a hit without new tokens";
  Ids held = engine.Table(first, 0);
  held.pop_back();  // the block of the last token
  EXPECT_EQ(engine.Table(second, 0), held);
  const Ids window = engine.Table(second, 1);
  ASSERT_EQ(window.size(), 6u);
  EXPECT_EQ(window[3], 0u) << "before the window";
  EXPECT_NE(window[4], 0u);
}

TEST(Release033, AHitThatWouldBeComputedAgainCompletelyDoesNotCount) {
  CacheConfig config = Of033({Full(), Replayed(32)});
  config.replay_tokens = 32;
  TestEngine engine(config);
  CacheRequest first = Request("0", Tokens(33));
  engine.Start(first);
  CacheRequest second = Request("1", Tokens(33));
  const PrefixHit hit = engine.Lookup(second);
  EXPECT_EQ(hit.tokens, 32);
  EXPECT_EQ(hit.computed_tokens(), 0);
  ASSERT_TRUE(engine.Allocate(second, {.new_tokens = 33, .hit = &hit}));
  EXPECT_NE(engine.Table(second, 0)[0], engine.Table(first, 0)[0]);
}

TEST(Release033, ACircularBufferKeepsItsOneBlock) {
  GroupSpec ring = {.kind = SpecKind::kCircularBuffer};
  ring.prefix_cacheable = false;
  TestEngine engine(Of033({Full(), ring}));
  CacheRequest request = Request("0", Tokens(100));
  engine.Start(request);
  const Ids buffer = engine.Table(request, 1);
  EXPECT_EQ(buffer.size(), 1u);
  for (TokenId token = 0; token < 40; ++token) ASSERT_TRUE(engine.Decode(request, token));
  EXPECT_EQ(engine.Table(request, 1), buffer);
  for (const BlockStored& stored : StoresOf(engine)) EXPECT_EQ(stored.group_idx, 0);
  const int64_t free = engine.free_blocks();
  engine.Free(request);
  EXPECT_EQ(engine.free_blocks(), free + 9 + 1);
}

GroupSpec MambaWithCheckpoints() {
  GroupSpec mamba = Mamba(MambaMode::kAlign, 64);
  mamba.prefill_checkpoint_blocks = 1;
  mamba.prefill_checkpoint_alignment = 16;
  return mamba;
}

// A column is an index into the block table. A prefill checkpoint is the state after the last hash
// unit of a prompt. If the last chunk starts at least two columns before the column in which it
// ends, the chunk keeps the checkpoint in the column before its last column. The engine then needs
// no step that ends at the checkpoint.
TEST(Release033, APrefillCheckpointNeedsNoStepOfItsOwn) {
  CacheConfig config = Of033({Full(64), MambaWithCheckpoints()});
  config.hash_block_size = 16;
  config.retention_interval = 0;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(220));
  engine.Start(request);
  const Ids states = engine.Table(request, 1);
  ASSERT_EQ(states.size(), 4u);
  EXPECT_EQ(states[1], 0u);
  EXPECT_NE(states[2], 0u) << "the checkpoint";
  EXPECT_NE(states[3], 0u) << "the running state";
  engine.cache().BeginStep();
  CacheRequest again = Request("1", Tokens(220));
  EXPECT_EQ(engine.Lookup(again).tokens, 208);
}

// If a group drops a block for its draft head, a checkpoint may belong to a shorter prefix than the
// full block of its column. The column holds the state of the checkpoint only.
TEST(Release033, ACheckpointReplacesTheKeyOfTheFullBlock) {
  CacheConfig config = Of033({Eagle(Full(64)), MambaWithCheckpoints()});
  config.hash_block_size = 16;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(200));
  engine.Start(request);
  const Digest& checkpoint = request.chain[176 / 16 - 1];
  const BlockHash full_hash = ToEventHash(request.chain[192 / 16 - 1], EventOptions().hash_form);
  std::vector<std::string> events;
  for (const Event& event : engine.cache().TakeEvents()) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      if (stored->group_idx != 1) continue;
      events.push_back(stored->block_hashes.at(0) == full_hash ? "full" : "checkpoint");
      if (events.back() == "full") continue;
      EXPECT_EQ(stored->block_hashes.at(0), ToEventHash(checkpoint, EventOptions().hash_form));
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      EXPECT_EQ(removed->block_hashes.at(0), full_hash);
      events.push_back("removed");
    }
  }
  EXPECT_EQ(events, (std::vector<std::string>{"full", "removed", "checkpoint"}));
  const std::vector<CachedKey> keys = engine.cache().CachedKeys(GroupIdx(1));
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_TRUE(keys[0].digest == checkpoint);
}

// The blocks for drafts hold no state that is needed later, so a checkpoint may use one of them.
TEST(Release033, ACheckpointMayUseABlockForDrafts) {
  for (const int64_t drafts : {0, 1}) {
    GroupSpec mamba = MambaWithCheckpoints();
    mamba.speculative_blocks = drafts;
    CacheConfig config = Of033({Full(64), mamba});
    config.hash_block_size = 16;
    TestEngine engine(config);
    CacheRequest request = Request("0", Tokens(300));
    ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 192}));
    engine.cache().BeginStep();
    ASSERT_TRUE(engine.Allocate(request, {.computed_tokens = 192, .new_tokens = 108}));
    engine.cache().BeginStep();
    CacheRequest again = Request("1", Tokens(300));
    EXPECT_EQ(engine.Lookup(again).tokens, 288) << drafts << " blocks for drafts";
  }
}

// While a step is in flight, the table holds several states with null blocks between them.
TEST(Release033, StatesBeforeANullBlockAreReleased) {
  TestEngine engine(Of033({Mamba(MambaMode::kAlign)}));
  CacheRequest request = Request("0", Tokens(320));
  ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 64}));
  for (const int64_t computed : {64, 128, 192}) {
    ASSERT_TRUE(engine.Allocate(
        request, {.computed_tokens = computed, .new_tokens = 64, .in_flight_tokens = 64}));
  }
  const Ids states = engine.Table(request, 0);
  ASSERT_EQ(states.size(), 16u);
  EXPECT_EQ(states[3], 0u);
  EXPECT_NE(states[7], 0u) << "the step in flight starts from this state";
  EXPECT_NE(states[11], 0u);
  EXPECT_NE(states[15], 0u);
}

// The second step needs a block only for the copy of its shared tail.
TEST(Release033, AStepThatNeedsOnlyACopyNeedsOneBlock) {
  CacheConfig config = Of033({Full(64), Mamba(MambaMode::kAlign, 64)});
  config.hash_block_size = 16;
  config.num_blocks = 7;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(250));
  ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 240}));
  ASSERT_EQ(engine.free_blocks(), 1);
  engine.cache().BeginStep();
  EXPECT_TRUE(engine.Allocate(request, {.computed_tokens = 240, .new_tokens = 10}));
  EXPECT_EQ(engine.free_blocks(), 0);
}

// A request can hit all tokens of a prompt except the last token. If a prompt ends with a hash
// unit, v0.33 therefore caches no entry for this unit.
TEST(Release033, ThePartialTailEndsBeforeTheLastToken) {
  for (const EngineRules rules : {EngineRules::kMain2026August, EngineRules::kV033}) {
    CacheConfig config = Of033({Full(64), Mamba(MambaMode::kAlign, 64)});
    config.hash_block_size = 16;
    config.rules = rules;
    TestEngine engine(config);
    CacheRequest request = Request("0", Tokens(96));
    engine.Start(request);
    int64_t end = 0;
    for (const BlockStored& stored : StoresOf(engine)) {
      if (stored.group_idx == 0 && stored.block_size == 16) end = stored.token_ids->back() + 1;
    }
    EXPECT_EQ(end, rules == EngineRules::kV033 ? 80 : 96);
  }
}

}  // namespace
}  // namespace kvcast::engine
