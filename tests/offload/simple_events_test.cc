// What the simple offload tells routers of the host tier.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/simple_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

TEST(SimpleEvents, AResetSaysWhichTierItCleared) {
  TestTier tier(Config({Full()}, 20), Eager(9));
  tier.Serve(Request("a", Tokens(17)));
  tier.Events();
  tier.offload().Reset();
  EXPECT_THAT(tier.Events(), ElementsAre("cleared CPU"));
}

TEST(SimpleEvents, LikeVllmTheyAreOfMediumGpuAndTellOfNoStore) {
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
    // Group 1, the block at 16, in an event of its own or after the one at 0.
    const auto found = std::ranges::find_if(events, [](const Event& event) {
      const auto& stored = std::get<BlockStored>(event);
      return stored.group_idx == 1 && stored.token_ids->back() == 31;
    });
    ASSERT_NE(found, events.end());
    const auto& stored = std::get<BlockStored>(*found);
    const size_t blocks = mode == StoreMode::kEager ? 2 : 1;
    ASSERT_EQ(stored.block_hashes.size(), blocks);
    EXPECT_EQ(stored.block_hashes.back(), ToEventHash(request.chain[1], EventHashForm::kInt64));
    if (blocks == 1) {
      EXPECT_EQ(stored.parent_block_hash, ToEventHash(request.chain[0], EventHashForm::kInt64));
    } else {
      EXPECT_EQ(stored.parent_block_hash, std::nullopt);
    }
    EXPECT_EQ(stored.token_ids->size(), blocks * 16);
    EXPECT_EQ(stored.block_size, 16);
    EXPECT_EQ(stored.medium, kMediumCpu);
    EXPECT_EQ(stored.kv_cache_spec_kind, "sliding_window");
    EXPECT_EQ(stored.kv_cache_spec_sliding_window, 64);
    EXPECT_EQ(stored.lora_id, 7);
    EXPECT_EQ(stored.lora_name, "adapter");
    ASSERT_TRUE(stored.extra_keys.has_value());
    EXPECT_EQ(stored.extra_keys->size(), blocks);
    EXPECT_EQ(stored.token_offset, blocks == 2 ? 0 : 16);
  }
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
