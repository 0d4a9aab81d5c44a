// A simulated engine with an offloading connector sends the right events. It copies a block before
// another request gets the block. A request waits only for a limited time for the load of another
// request.
// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/connector_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/apps/engine/tiered_engine.h"

namespace kvcast::tools {
namespace {

using ::testing::HasSubstr;

TierOptions Connector(const std::string& model = "full") {
  TierOptions setup;
  setup.model = model;
  setup.kind = OffloadKind::kConnector;
  setup.gpu_blocks = 101;
  return setup;
}

// Collects the events of host memory.
struct HostEvents {
  std::vector<BlockStored> stored;
  std::vector<BlockRemoved> removed;

  void Follow(Tiered& tiered) {
    tiered.on_events = [this](const std::vector<Event>& events) {
      for (const Event& event : events) {
        const auto* store = std::get_if<BlockStored>(&event);
        const auto* remove = std::get_if<BlockRemoved>(&event);
        if (store != nullptr && store->medium != kMediumGpu) stored.push_back(*store);
        if (remove != nullptr && remove->medium != kMediumGpu) removed.push_back(*remove);
      }
    };
  }
};

// The connector sends one event per chunk of a group, as vLLM's connector does: medium CPU, no
// locality, no ownership.
TEST(ConnectorTier, AnnouncesChunksByGroup) {
  Tiered tiered(Connector("full-swa"));
  HostEvents events;
  events.Follow(tiered);
  tiered.Serve(64, 0);
  ASSERT_EQ(events.stored.size(), 8u) << "4 blocks in each of 2 groups";
  int64_t of_window = 0;
  for (const BlockStored& store : events.stored) {
    EXPECT_EQ(store.medium, "CPU");
    EXPECT_EQ(store.locality, std::nullopt);
    EXPECT_EQ(store.ownership, std::nullopt);
    EXPECT_EQ(store.block_hashes.size(), 1u);
    EXPECT_EQ(store.block_size, 16);
    ASSERT_TRUE(store.group_idx.has_value());
    of_window += *store.group_idx == 1;
  }
  EXPECT_EQ(of_window, 4);
}

TEST(ConnectorTier, TheEventOfAChunkNamesAllItsBlocks) {
  TierOptions setup = Connector();
  setup.blocks_per_chunk = 4;
  Tiered tiered(std::move(setup));
  HostEvents events;
  events.Follow(tiered);
  tiered.Serve(150, 0);
  ASSERT_EQ(events.stored.size(), 2u) << "9 blocks contain 2 whole chunks";
  for (const BlockStored& store : events.stored) EXPECT_EQ(store.block_hashes.size(), 4u);
}

// The copy runs during the next step. The connector announces the chunk when the copy has ended.
TEST(ConnectorTier, AnnouncesAChunkWhenItsCopyHasEnded) {
  Tiered tiered(Connector());
  HostEvents events;
  events.Follow(tiered);
  tiered.Add(64, 0);
  tiered.engine().Step();
  EXPECT_EQ(tiered.finished.size(), 1u);
  EXPECT_EQ(tiered.host().stored_blocks(), 0);
  EXPECT_GT(tiered.engine().Step(), 0) << "a step without requests takes time while a copy runs";
  EXPECT_EQ(tiered.host().stored_blocks(), 4);
  EXPECT_TRUE(events.stored.empty());
  EXPECT_FALSE(tiered.engine().idle());
  tiered.engine().Step();
  EXPECT_EQ(events.stored.size(), 4u);
  EXPECT_TRUE(tiered.engine().idle());
}

TEST(ConnectorTier, AFailedCopyIsNotAnnounced) {
  TierOptions setup = Connector();
  setup.backend = Faulty(CopyDirection::kStore, Fate::kFailed);
  Tiered tiered(std::move(setup));
  HostEvents events;
  events.Follow(tiered);
  tiered.Serve(64, 0);
  EXPECT_EQ(tiered.host().stored_blocks(), 4);
  EXPECT_TRUE(events.stored.empty());
  EXPECT_TRUE(events.removed.empty());
}

TEST(ConnectorTier, AnEvictionIsAnnouncedBeforeTheChunkThatGetsTheSlot) {
  TierOptions setup = Connector();
  setup.cpu_blocks = 4;
  Tiered tiered(std::move(setup));
  HostEvents events;
  events.Follow(tiered);
  tiered.Serve(64, 0);
  ASSERT_EQ(events.stored.size(), 4u);
  tiered.Add(32, 5000);
  tiered.engine().Step();
  ASSERT_EQ(events.removed.size(), 1u);
  EXPECT_EQ(events.removed[0].medium, "CPU");
  EXPECT_EQ(events.removed[0].group_idx, 0);
  EXPECT_EQ(events.removed[0].block_hashes.size(), 2u);
  EXPECT_EQ(events.stored.size(), 4u) << "the new chunks are not announced yet";
  tiered.RunUntilIdle();
  EXPECT_EQ(events.stored.size(), 6u);
}

TEST(ConnectorTier, StoresOnlyPrompts) {
  Tiered tiered(Connector());
  tiered.Serve(40, 0, /*outputs=*/100);
  EXPECT_EQ(tiered.host().stored_blocks(), 2);
}

// Two prompts have the same first 320 tokens, and host memory holds these tokens. The second
// request waits for the load of the first request and then hits the loaded blocks. In the meantime,
// the engine admits a third request.
TEST(ConnectorTier, ARequestWaitsForTheLoadOfAnotherRequest) {
  TierOptions setup = Connector();
  setup.engine.load_tokens_per_s = 320 / 0.05;
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.admissions.clear();
  tiered.Add(320, 0);
  tiered.Add(400, 0);
  tiered.Add(100, 5000);
  tiered.engine().Step();
  ASSERT_EQ(tiered.admissions.size(), 2u);
  EXPECT_EQ(tiered.admissions[0].loaded_tokens, 319);
  EXPECT_EQ(tiered.admissions[1].number, 3);
  tiered.RunUntilIdle();
  ASSERT_EQ(tiered.admissions.size(), 3u);
  EXPECT_EQ(tiered.admissions[2].number, 2);
  EXPECT_EQ(tiered.admissions[2].hit_tokens, 320);
  EXPECT_EQ(tiered.admissions[2].loaded_tokens, 0);
  EXPECT_EQ(tiered.host().loaded_blocks(), 20);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
  EXPECT_EQ(tiered.wrong_predictions, 0);
}

// The load of the first request takes longer than OffloadSchedulerConfig::max_pending_ms. The
// second request then loads the same chunks itself.
TEST(ConnectorTier, AWaitForALongLoadEnds) {
  TierOptions setup = Connector();
  setup.engine.load_tokens_per_s = 320 / 0.5;
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Add(320, 0);
  tiered.Add(320, 0);
  tiered.RunUntilIdle();
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, 319);
  EXPECT_EQ(tiered.host().loaded_blocks(), 40);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
  EXPECT_EQ(tiered.wrong_predictions, 0);
  tiered.ExpectAllGivenBack();
}

// The pool has room for one request at a time.
TEST(ConnectorTier, BlocksAreCopiedBeforeAnotherRequestGetsThem) {
  TierOptions setup = Connector();
  setup.gpu_blocks = 22;
  setup.backend = Faulty(CopyDirection::kStore, Fate::kLate);
  Tiered tiered(std::move(setup));
  tiered.Add(320, 0);
  tiered.Add(320, 5000);
  tiered.RunUntilIdle();
  for (const TokenId first : {0, 5000}) {
    tiered.Serve(320, first);
    const Admission& seen = tiered.admissions.back();
    EXPECT_EQ(seen.hit_tokens + seen.loaded_tokens, 319);
    EXPECT_GE(seen.loaded_tokens, 300);
  }
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
}

TEST(ConnectorTier, ErrorsNameTheField) {
  CacheOptions options;
  options.model = "full";
  options.blocks = 20;
  const auto cache = MakeCacheManager(options);
  const auto error = [&](HostTierConfig config) {
    config.kind = OffloadKind::kConnector;
    return HostTier::Create(config, **cache, MakeHostCopyBackend({.threads = 1}).value())
        .status()
        .message();
  };
  EXPECT_THAT(error({.cpu_blocks = -1}), HasSubstr("capacity_bytes"));
  EXPECT_THAT(error({.cpu_blocks = 3, .blocks_per_chunk = 4}), HasSubstr("cpu_blocks"));
  EXPECT_THAT(error({.cpu_blocks = 9, .blocks_per_chunk = 0}), HasSubstr("blocks_per_chunk"));
  EXPECT_THAT(error({.cpu_blocks = 9, .block_bytes = 12}), HasSubstr("block_bytes"));
}

}  // namespace
}  // namespace kvcast::tools
