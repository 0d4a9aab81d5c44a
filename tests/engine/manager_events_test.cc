// The events of the manager are annotated, ordered and complete.
// SPDX-License-Identifier: Apache-2.0
#include "src/engine/annotate.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

std::vector<Event> Taken(TestEngine& engine) { return engine.cache().TakeEvents(); }

// k+1 blocks in the pool, k blocks cached (k = 2, 3, 10): the only event has k hashes, 16 k tokens,
// kind full_attention and no parent. A second TakeEvents returns no events.
TEST(ManagerEvents, OneStoredEventForAllBlocksOfAStep) {
  for (const int64_t k : {2, 3, 10}) {
    TestEngine engine(Config({Full()}, k + 1));
    CacheRequest request = Request("0", Tokens(16 * k));
    engine.Start(request);
    const auto events = Taken(engine);
    ASSERT_EQ(events.size(), 1u);
    const auto& stored = std::get<BlockStored>(events[0]);
    EXPECT_EQ(stored.block_hashes.size(), static_cast<size_t>(k));
    EXPECT_EQ(stored.token_ids, Tokens(16 * k));
    EXPECT_EQ(stored.kv_cache_spec_kind, "full_attention");
    EXPECT_EQ(stored.group_idx, 0);
    EXPECT_EQ(stored.parent_block_hash, std::nullopt);
    EXPECT_TRUE(Taken(engine).empty());
  }
}

// A request is freed, and the same tokens are computed without a lookup (k = 2, 3, 10): k
// BlockRemoved events of one hash each, then one BlockStored. A reset sends AllBlocksCleared last.
TEST(ManagerEvents, ReallocatedBlocksAreRemovedBeforeTheyAreStoredAgain) {
  for (const size_t k : {2u, 3u, 10u}) {
    TestEngine engine(Config({Full()}, static_cast<int64_t>(k) + 1));
    CacheRequest request = Request("0", Tokens(16 * static_cast<int64_t>(k)));
    engine.Start(request);
    engine.Free(request);
    Taken(engine);
    engine.StartWithoutLookup(request);
    engine.Free(request);
    ASSERT_TRUE(engine.cache().ResetPrefixCache());
    const auto events = Taken(engine);
    ASSERT_EQ(events.size(), k + 2);
    for (size_t i = 0; i < k; ++i) {
      EXPECT_EQ(std::get<BlockRemoved>(events[i]).block_hashes.size(), 1u);
    }
    EXPECT_EQ(std::get<BlockStored>(events[k]).block_hashes.size(), k);
    EXPECT_TRUE(std::holds_alternative<AllBlocksCleared>(events[k + 1]));
  }
}

// Groups full / SWA (window 8) / Mamba / chunked have the kinds full_attention, sliding_window,
// mamba, chunked_local_attention. Only the event of the SWA group has a window.
TEST(ManagerEvents, CarryKindAndWindowOfTheirGroup) {
  TestEngine engine(Config({Full(), Window(8), Mamba(MambaMode::kAlign), Chunked(32)}, 50));
  CacheRequest request = Request("0", Tokens(16));
  engine.Start(request);
  const auto events = Taken(engine);
  ASSERT_EQ(events.size(), 4u);
  const char* kinds[] = {"full_attention", "sliding_window", "mamba", "chunked_local_attention"};
  for (size_t i = 0; i < 4; ++i) {
    const auto& stored = std::get<BlockStored>(events[i]);
    EXPECT_EQ(stored.group_idx, static_cast<int64_t>(i));
    EXPECT_EQ(stored.kv_cache_spec_kind, kinds[i]);
    EXPECT_EQ(stored.kv_cache_spec_sliding_window.has_value(), i == 1);
  }
  EXPECT_EQ(std::get<BlockStored>(events[1]).kv_cache_spec_sliding_window, 8);
}

// gemma-3-1b (7 groups), 32 tokens: 7 events with group_idx = position, 2 hashes, 32 tokens, no
// parent. With retention 0 the SWA groups store only hash 0, and token_ids still has 32 tokens.
TEST(ManagerEvents, SevenGroupsStoreSevenTimes) {
  std::vector<GroupSpec> groups(6, Window(512));
  groups.push_back(Full());
  for (const bool dense : {true, false}) {
    CacheConfig config = Config(groups, 100);
    if (!dense) config.retention_interval = 0;
    TestEngine engine(config);
    CacheRequest request = Request("0", Tokens(32));
    engine.Start(request);
    const auto events = Taken(engine);
    ASSERT_EQ(events.size(), 7u);
    for (size_t i = 0; i < 7; ++i) {
      const auto& stored = std::get<BlockStored>(events[i]);
      EXPECT_EQ(stored.group_idx, static_cast<int64_t>(i));
      ASSERT_EQ(stored.block_hashes.size(), dense || i == 6 ? 2u : 1u);
      EXPECT_EQ(stored.block_hashes[0], ToEventHash(request.chain[0], EventHashForm::kInt64));
      EXPECT_EQ(stored.token_ids, Tokens(32));
      EXPECT_EQ(stored.parent_block_hash, std::nullopt);
    }
  }
}

TEST(ManagerEvents, ALaterStepNamesTheBlockBeforeItAsParent) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest request = Request("0", Tokens(64));
  ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 32}));
  const auto first = std::get<BlockStored>(Taken(engine).at(0));
  ASSERT_TRUE(engine.Allocate(request, {.computed_tokens = 32, .new_tokens = 32}));
  const auto second = std::get<BlockStored>(Taken(engine).at(0));
  EXPECT_EQ(second.parent_block_hash, first.block_hashes.back());
  EXPECT_EQ(second.token_ids, Tokens(32, 32));
}

// group_idx 1 or -1 with 1 group: the event gets no annotation, and the error names the index.
TEST(ManagerEvents, AGroupThatTheCacheDoesNotHaveIsNamedAndLeftUnannotated) {
  const std::vector<GroupSpec> groups = {Window(8)};
  BlockStored event;
  event.group_idx = 0;
  EXPECT_TRUE(Annotate(groups, event).ok());
  EXPECT_EQ(event.kv_cache_spec_kind, "sliding_window");
  EXPECT_EQ(event.kv_cache_spec_sliding_window, 8);
  for (const int64_t group : {int64_t{1}, int64_t{-1}}) {
    event.group_idx = group;
    const Status status = Annotate(groups, event);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "a stored event has group_idx " + std::to_string(group) + ", but there are 1 groups");
    EXPECT_EQ(event.kv_cache_spec_kind, std::nullopt);
    EXPECT_EQ(event.kv_cache_spec_sliding_window, std::nullopt);
  }
  event.group_idx.reset();
  EXPECT_TRUE(Annotate(groups, event).ok());
  EXPECT_EQ(event.kv_cache_spec_kind, std::nullopt);
}

TEST(ManagerEvents, ARequestInReportModeAnnouncesItsHitAgain) {
  TestEngine engine(Config({Full(), Window(32)}, 40));
  CacheRequest first = Request("0", Tokens(70));
  engine.Start(first);
  Taken(engine);
  CacheRequest second = Request("1", Tokens(70));
  second.report_hits = true;
  engine.Lookup(second);
  const auto events = Taken(engine);
  ASSERT_EQ(events.size(), 2u);
  for (const Event& event : events) {
    const auto& stored = std::get<BlockStored>(event);
    EXPECT_EQ(stored.block_hashes.size(), 4u) << "null positions of the window too";
    EXPECT_EQ(stored.token_ids, Tokens(64));
    EXPECT_EQ(stored.parent_block_hash, std::nullopt);
  }
  CacheRequest miss = Request("2", Tokens(70, 1000));
  miss.report_hits = true;
  engine.Lookup(miss);
  EXPECT_TRUE(Taken(engine).empty());
}

// A block has 64 tokens, and a hash covers 16 tokens.
CacheConfig FourHashesABlock() {
  CacheConfig config = Config({Full(64), Mamba(MambaMode::kAlign, 64)}, 40);
  config.hash_block_size = 16;
  return config;
}

// A hit of 16 tokens has no whole block, so there is no event.
TEST(ManagerEvents, AReportOfAHitInsideTheFirstBlockSendsNoEvent) {
  TestEngine engine(FourHashesABlock());
  CacheRequest first = Request("0", Tokens(20));
  ASSERT_TRUE(engine.Allocate(first, {.new_tokens = 16}));
  Taken(engine);
  CacheRequest second = Request("1", Tokens(20));
  second.report_hits = true;
  EXPECT_EQ(engine.Lookup(second).tokens, 16);
  EXPECT_TRUE(Taken(engine).empty());
}

// The cache holds 80 tokens: one block of full attention, and the first 16 tokens of the next
// block. The hashes of the second request cover its second block, but the cache holds only a part
// of this block's tokens.
TEST(ManagerEvents, AReportNamesNoBlockOfWhichOnlyAPartIsHeld) {
  TestEngine engine(FourHashesABlock());
  CacheRequest first = Request("0", Tokens(85));
  ASSERT_TRUE(engine.Allocate(first, {.new_tokens = 64}));
  ASSERT_TRUE(engine.Allocate(first, {.computed_tokens = 64, .new_tokens = 16}));
  Taken(engine);
  CacheRequest second = Request("1", Tokens(140));
  second.report_hits = true;
  EXPECT_EQ(engine.Lookup(second).tokens, 80);
  const auto events = Taken(engine);
  ASSERT_EQ(events.size(), 2u);
  for (const Event& event : events) {
    const auto& stored = std::get<BlockStored>(event);
    EXPECT_EQ(stored.block_hashes.size(), 1u);
    EXPECT_EQ(stored.token_ids, Tokens(64));
  }
}

TEST(ManagerEvents, NoneWhenSwitchedOff) {
  TestEngine engine(Config({Full()}, 11), /*events=*/false);
  CacheRequest request = Request("0", Tokens(70));
  engine.Start(request);
  EXPECT_TRUE(Taken(engine).empty());
}

}  // namespace
}  // namespace kvcast::engine
