// The simple offload announces the host tier to routers.
// SPDX-License-Identifier: Apache-2.0
#include "src/offload/mirror/stored_chains.h"
#include "tests/offload/simple_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr EventHashForm kForm = EventHashForm::kInt64;

TEST(SimpleEvents, AStoreIsAnnouncedWhenItsCopyIsDoneAndNotBefore) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  CacheRequest request = Request("a", Tokens(33));
  tier.Start(request);
  tier.Step();
  tier.Step();
  EXPECT_THAT(tier.Events(), IsEmpty());
  tier.CompleteStores();
  EXPECT_THAT(tier.Events(), ElementsAre("+g0 2 blocks at 0"));
}

TEST(SimpleEvents, AnEvictionIsAnnouncedBeforeItsSlotIsUsedAgain) {
  TestTier tier(Config({Full()}, 20), Eager(3));
  tier.Serve(Request("a", Tokens(33)));
  tier.Events();
  CacheRequest request = Request("b", Tokens(33, 1000));
  tier.Start(request);
  tier.Step();
  tier.Step();
  EXPECT_THAT(tier.Events(), ElementsAre("-g0", "-g0"));
  tier.CompleteStores();
  EXPECT_THAT(tier.Events(), ElementsAre("+g0 2 blocks at 0"));
}

TEST(SimpleEvents, AResetNamesTheClearedTier) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  tier.Serve(Request("a", Tokens(17)));
  tier.Events();
  tier.offload().Reset();
  EXPECT_THAT(tier.Events(), ElementsAre("cleared CPU"));
}

TEST(SimpleEvents, LikeVllmTheyHaveMediumGpuAndNoStoreIsAnnounced) {
  TestTier tier(Config({Full()}, 20), LikeVllm(Eager(2)));
  const auto serve = [&tier](CacheRequest request) {
    tier.Start(request);
    tier.Step();
    tier.Step();
    tier.CompleteStores();
    tier.Finish(request);
  };
  serve(Request("a", Tokens(17)));
  serve(Request("b", Tokens(17, 1000)));
  EXPECT_TRUE(tier.offload().Reset());
  EXPECT_THAT(tier.Events(), ElementsAre("-g0 GPU", "cleared ?"));
}

TEST(SimpleEvents, AreAsFullAsThoseOfTheGpu) {
  for (const StoreMode mode : {StoreMode::kEager, StoreMode::kLazy}) {
    SimpleOffloadConfig config = mode == StoreMode::kEager ? Eager(20) : Lazy(20, 100);
    TestTier tier(Config({Full(), Window(64)}, 40), config);
    CacheRequest request = Request("a", Tokens(2 * 16 + 1));
    request.hash_inputs.lora_name = "adapter";
    request.hash_inputs.cache_salt = "salt";
    request.lora_id = 7;
    tier.Start(request);
    tier.Step();
    tier.Step();
    tier.Finish(request);
    tier.Step();
    tier.CompleteStores();
    std::vector<Event> events = tier.offload().TakeEvents();
    // Group 1: one event has the blocks at 0 and at 16.
    const auto found = std::ranges::find_if(events, [](const Event& event) {
      const auto& stored = std::get<BlockStored>(event);
      return stored.group_idx == 1 && stored.token_ids->back() == 31;
    });
    ASSERT_NE(found, events.end());
    const auto& stored = std::get<BlockStored>(*found);
    EXPECT_THAT(stored.block_hashes, ElementsAre(ToEventHash(request.chain[0], kForm),
                                                 ToEventHash(request.chain[1], kForm)));
    EXPECT_EQ(stored.parent_block_hash, std::nullopt);
    EXPECT_EQ(stored.token_ids->size(), 32u);
    EXPECT_EQ(stored.block_size, 16);
    EXPECT_EQ(stored.medium, kMediumCpu);
    EXPECT_EQ(stored.kv_cache_spec_kind, "sliding_window");
    EXPECT_EQ(stored.kv_cache_spec_sliding_window, 64);
    EXPECT_EQ(stored.lora_id, 7);
    EXPECT_EQ(stored.lora_name, "adapter");
    ASSERT_TRUE(stored.extra_keys.has_value());
    EXPECT_EQ(stored.extra_keys->size(), 2u);
    EXPECT_EQ(stored.token_offset, 0);
  }
}

// The events of one copy do not depend on the order in which the offload found the blocks.
TEST(SimpleEvents, OfALazyCopyAreThoseOfAnEagerOne) {
  std::vector<Event> of_modes[2];
  for (const StoreMode mode : {StoreMode::kEager, StoreMode::kLazy}) {
    SimpleOffloadConfig config = mode == StoreMode::kEager ? Eager(30) : Lazy(30, 100);
    TestTier tier(Config({Full(), Window(64)}, 60), config);
    for (const TokenId base : {0, 1000}) {
      CacheRequest request = Request("r", Tokens(9 * 16 + 1, base));
      tier.Start(request);
      tier.Step();
      if (mode == StoreMode::kEager) tier.Step();
      tier.Finish(request);
      tier.Step();
      tier.CompleteStores();
    }
    of_modes[mode == StoreMode::kLazy] = tier.offload().TakeEvents();
  }
  EXPECT_FALSE(of_modes[0].empty());
  EXPECT_THAT(of_modes[1], ::testing::UnorderedElementsAreArray(of_modes[0]));
}

BlockStored Piece(int64_t hash, std::optional<int64_t> parent, int64_t offset) {
  BlockStored event;
  event.block_hashes = {BlockHash::FromSigned(hash)};
  if (parent) event.parent_block_hash = BlockHash::FromSigned(*parent);
  event.token_ids = {hash, hash};
  event.block_size = 2;
  event.token_offset = offset;
  event.group_idx = 0;
  return event;
}

std::string Spans(const std::vector<BlockStored>& events) {
  std::string text;
  for (const BlockStored& event : events) {
    text += "[";
    for (const TokenId token : *event.token_ids) text += std::to_string(token);
    text += "]";
  }
  return text;
}

TEST(JoinChains, JoinsOnlyConsecutiveSpansOfOneGroup) {
  const BlockStored first = Piece(1, std::nullopt, 0);
  const BlockStored second = Piece(2, 1, 2);
  const BlockStored third = Piece(3, 2, 4);
  EXPECT_EQ(Spans(JoinChains({third, second, first})), "[112233]");
  EXPECT_EQ(Spans(JoinChains({third, first})), "[33][11]") << "a block is missing between them";
  EXPECT_EQ(Spans(JoinChains({second, Piece(4, 1, 2), first})), "[1122][44]")
      << "two blocks have the same parent";
  BlockStored other_group = second;
  other_group.group_idx = 1;
  EXPECT_EQ(Spans(JoinChains({other_group, first})), "[22][11]");
  BlockStored adapter = second;
  adapter.lora_id = 7;
  EXPECT_EQ(Spans(JoinChains({adapter, first})), "[22][11]");
  BlockStored unknown = second;
  unknown.block_size = 0;
  EXPECT_EQ(Spans(JoinChains({unknown, first})), "[22][11]");
  const BlockStored joined = JoinChains({third, second, first}).at(0);
  EXPECT_EQ(joined.parent_block_hash, std::nullopt);
  EXPECT_EQ(joined.block_hashes.size(), 3u);
  EXPECT_EQ(joined.token_offset, 0);
}

TEST(SimpleEvents, ABlockThatTheGpuHadBeforeIsAPlaceholder) {
  TestTier tier(Config({Full()}, 20), Lazy(9, 100));
  CacheRequest unseen = Request("unseen", Tokens(17));
  const PrefixHit hit = tier.gpu().GetComputedBlocks(unseen);
  ASSERT_TRUE(tier.gpu().AllocateSlots(unseen, {.new_tokens = 17, .hit = &hit}));
  tier.gpu().Free(unseen);
  TransferStep step;
  tier.offload().BuildStep({}, step);
  ASSERT_EQ(step.store.cpu.size(), 1u);
  EXPECT_TRUE(tier.offload().CompleteStore(*step.store_event).ok());
  const auto events = tier.offload().TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.block_size, 0);
  EXPECT_EQ(stored.token_ids, std::vector<TokenId>{});
  EXPECT_EQ(stored.block_hashes[0], ToEventHash(unseen.chain[0], EventHashForm::kInt64));
  EXPECT_EQ(stored.group_idx, 0);
  EXPECT_EQ(stored.kv_cache_spec_kind, "full_attention");
  tier.offload().Reset();
}

TEST(SimpleEvents, CanBeTurnedOff) {
  for (SimpleOffloadConfig config : {Eager(9), Lazy(9, 100)}) {
    config.events.enabled = false;
    TestTier tier(Config({Full()}, 20), config);
    tier.Serve(Request("a", Tokens(33)));
    tier.offload().Reset();
    EXPECT_THAT(tier.Events(), IsEmpty());
  }
}

}  // namespace
}  // namespace kvcast::offload
