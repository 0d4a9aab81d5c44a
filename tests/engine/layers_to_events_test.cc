// The layers of a model determine the groups, and the groups determine the events of the engine.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "kvcast/spec/kv_cache_groups.h"
#include "kvcast/spec/kv_cache_sizing.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

using ::testing::SizeIs;

CacheConfig ConfigOf(const std::vector<LayerSpec>& layers, const KvCacheGroupOptions& options = {},
                     const CacheConfig& limits = {}) {
  const auto groups = MakeKvCacheGroups(layers, options);
  EXPECT_TRUE(groups.ok()) << groups.status().ToString();
  PoolMemory memory;
  memory.workers = {{.available_bytes = 1}};
  memory.workers[0].available_bytes = groups->block_bytes * 100;
  memory.auto_fit_max_model_len = true;
  const auto config = SizeCache(*groups, memory, limits);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return *config;
}

LayerSpec Layer(int index, GroupSpec spec) {
  LayerSpec layer;
  layer.name = std::to_string(index);
  layer.spec = spec;
  return layer;
}

// As in gemma-3-1b, every sixth layer is full attention.
std::vector<LayerSpec> Gemma() {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 26; ++i) layers.push_back(Layer(i, i % 6 == 5 ? Full() : Window(512)));
  return layers;
}

std::vector<BlockStored> Stored(TestEngine& engine, int64_t tokens) {
  CacheRequest request = Request("0", Tokens(tokens));
  engine.Start(request);
  std::vector<BlockStored> stored;
  for (const Event& event : engine.cache().TakeEvents()) {
    stored.push_back(std::get<BlockStored>(event));
  }
  return stored;
}

// Llama (1 group) and gemma-3-1b (7 groups), 32 tokens: one event per group, with group_idx =
// position, 2 hashes, 32 tokens, no parent. The hybrid manager is on by default, with or without
// events.
TEST(LayersToEvents, EachGroupSendsItsOwnEvent) {
  ASSERT_TRUE(*ResolveHybridManager(Gemma(), {}));
  for (const auto& [layers, groups] :
       {std::pair(Gemma(), size_t{7}), std::pair(std::vector{Layer(0, Full())}, size_t{1})}) {
    CacheConfig limits;
    limits.max_in_flight_tokens = 64;
    TestEngine engine(ConfigOf(layers, {}, limits), /*events=*/true);
    const auto stored = Stored(engine, 32);
    ASSERT_THAT(stored, SizeIs(groups));
    for (size_t i = 0; i < groups; ++i) {
      EXPECT_EQ(stored[i].group_idx, static_cast<int64_t>(i));
      EXPECT_THAT(stored[i].block_hashes, SizeIs(2));
      EXPECT_THAT(*stored[i].token_ids, SizeIs(32));
      EXPECT_FALSE(stored[i].parent_block_hash.has_value());
      EXPECT_EQ(stored[i].kv_cache_spec_kind,
                i + 1 == groups ? "full_attention" : "sliding_window");
    }
  }
}

// With decode context parallel size 2 a block has 32 tokens wherever blocks are counted: in hashes,
// in the table, in stored events, and in a full report.
TEST(LayersToEvents, DecodeContextParallelCountsTheTokensOfAllRanks) {
  TestEngine engine(ConfigOf({Layer(0, Full())}, {.decode_context_parallel = 2}));
  const auto stored = Stored(engine, 100);
  ASSERT_THAT(stored, SizeIs(1));
  EXPECT_EQ(stored[0].block_size, 32);
  EXPECT_THAT(stored[0].block_hashes, SizeIs(3));
  EXPECT_THAT(*stored[0].token_ids, SizeIs(96));
  CacheRequest again = Request("1", Tokens(100));
  again.report_hits = true;
  EXPECT_EQ(engine.Lookup(again).tokens, 96);
  EXPECT_THAT(again.chain, SizeIs(3));
  const auto report = engine.cache().TakeEvents();
  ASSERT_THAT(report, SizeIs(1));
  EXPECT_EQ(std::get<BlockStored>(report[0]).block_size, 32);
  EXPECT_THAT(*std::get<BlockStored>(report[0]).token_ids, SizeIs(96));
}

// An attention block has 32 tokens over both ranks, and a Mamba group keeps a state every 16
// tokens. Hits may end at every multiple of 16 tokens.
TEST(LayersToEvents, DecodeContextParallelLetsHitsEndInsideABlockBesideMamba) {
  LayerSpec mamba = Layer(1, Mamba(MambaMode::kAlign));
  mamba.state_bytes = 100;
  CacheConfig config = ConfigOf({Layer(0, Full()), mamba}, {.decode_context_parallel = 2});
  config.rules = EngineRules::kMain2026August;  // the last hash boundary is the end of the prompt
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(48));
  engine.Start(request);
  engine.cache().ReleaseCopies(engine.cache().TakeCopies());
  engine.cache().BeginStep();
  CacheRequest longer = Request("1", Tokens(60));
  EXPECT_EQ(engine.Lookup(longer).tokens, 48);
}

}  // namespace
}  // namespace kvcast::engine
