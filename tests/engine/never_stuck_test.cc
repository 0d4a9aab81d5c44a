// In a pool that start-up accepts, no request gets stuck. Random models run requests of
// max_model_len to the end in the smallest pool that sizing accepts.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <random>

#include "kvcast/spec/kv_cache_groups.h"
#include "kvcast/spec/kv_cache_sizing.h"
#include "src/base/sanitizers.h"
#include "tests/engine/random_pick.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

GroupSpec RandomSpec(Random& random, int64_t block_size) {
  switch (Pick(random, 0, 5)) {
    case 0:
    case 1:
      return Full(block_size);
    case 2:
      return Window(Pick(random, 1, 60), block_size);
    case 3:
      return Chunked(block_size * Pick(random, 1, 4), block_size);
    default: {
      const std::array<MambaMode, 3> modes = {MambaMode::kAlign, MambaMode::kAlign,
                                              MambaMode::kAll};
      GroupSpec spec = Mamba(modes[static_cast<size_t>(Pick(random, 0, 2))], block_size);
      spec.speculative_blocks = Pick(random, 0, 2);
      return spec;
    }
  }
}

// One to three kinds of layers, one to five layers of each.
std::vector<LayerSpec> RandomLayers(Random& random) {
  std::vector<LayerSpec> layers;
  const int64_t kinds = Pick(random, 1, 3);
  for (int64_t kind = 0; kind < kinds; ++kind) {
    LayerSpec layer;
    layer.spec = RandomSpec(random, int64_t{4} << Pick(random, 0, 2));
    layer.num_heads = int64_t{1} << Pick(random, 0, 2);
    layer.state_bytes = layer.spec.kind == SpecKind::kMamba ? 512 : 0;
    layer.spec.eagle =
        layer.spec.kind != SpecKind::kChunkedLocalAttention && Pick(random, 0, 4) == 0;
    const int64_t count = Pick(random, 1, 5);
    for (int64_t i = 0; i < count; ++i) {
      layer.name = std::to_string(kind) + "." + std::to_string(i);
      layers.push_back(layer);
    }
  }
  return layers;
}

CacheConfig RandomLimits(Random& random) {
  CacheConfig config;
  config.max_model_len = Pick(random, 1, 300);
  config.max_in_flight_tokens = Pick(random, 1, 80);
  config.hash_block_size = Pick(random, 0, 1) == 0 ? 0 : 4;
  if (Pick(random, 0, 1) == 0) config.retention_interval = 0;
  return config;
}

// Returns the smallest pool that sizing accepts, or the reason why it accepts no pool.
Result<CacheConfig> SmallestCache(const std::vector<LayerSpec>& layers, const CacheConfig& limits,
                                  int64_t ranks = 1) {
  const auto groups = MakeKvCacheGroups(layers, {.decode_context_parallel = ranks});
  if (!groups.ok()) return groups.status();
  PoolMemory memory;
  memory.workers = {{.available_bytes = groups->block_bytes * 100000}};
  auto sized = SizeCache(*groups, memory, limits);
  if (!sized.ok()) return sized;
  int64_t refused = 0;
  int64_t accepted = sized->num_blocks;
  while (accepted - refused > 1) {
    const int64_t middle = refused + (accepted - refused) / 2;
    memory.num_gpu_blocks_override = middle;
    (SizeCache(*groups, memory, limits).ok() ? accepted : refused) = middle;
  }
  memory.num_gpu_blocks_override = accepted;
  return SizeCache(*groups, memory, limits);
}

class LoneRequest {
 public:
  LoneRequest(Random& random, const CacheConfig& config, bool on_grid)
      : random_(random), engine_(config, /*events=*/false), on_grid_(on_grid) {}

  // Computes a prompt in chunks, then single tokens, until max_model_len. Returns the reused
  // tokens, or nullopt if a step got no blocks.
  std::optional<int64_t> Run(std::vector<TokenId> prompt) {
    const int64_t length = engine_.config().max_model_len;
    CacheRequest request = Request(std::to_string(next_++), std::move(prompt));
    EXPECT_TRUE(engine_.cache().CanEverFit(length));
    engine_.cache().BeginStep();
    const PrefixHit hit = engine_.Lookup(request);
    int64_t computed = hit.tokens;
    bool first = true;
    while (computed < length) {
      if (computed == Known(request)) request.tokens.push_back(Pick(random_, 0, 3));
      const int64_t step = StepOf(request, computed);
      AllocateArgs args{.new_tokens = step};
      if (first) {
        args.hit = &hit;
        args.full_sequence_must_fit = true;
      } else {
        args.computed_tokens = computed;
      }
      if (!engine_.Allocate(request, args)) return std::nullopt;
      engine_.cache().ReleaseCopies(engine_.cache().TakeCopies());
      engine_.cache().BeginStep();
      first = false;
      computed += step;
    }
    engine_.Free(request);
    return hit.tokens;
  }

 private:
  static int64_t Known(const CacheRequest& request) {
    return static_cast<int64_t>(request.tokens.size());
  }
  // If possible, a scheduler ends the steps of a prompt on block boundaries where Mamba states are
  // kept, and on the last hash boundary of the prompt.
  int64_t StepOf(const CacheRequest& request, int64_t computed) {
    const int64_t most = std::min(Known(request) - computed, engine_.config().max_in_flight_tokens);
    if (!on_grid_ || computed + most >= request.prompt_tokens) {
      const int64_t hash_block_size = engine_.config().hash_block_size;
      const int64_t boundary = request.prompt_tokens / hash_block_size * hash_block_size;
      const bool crosses = computed < boundary && boundary < computed + most;
      return on_grid_ && crosses ? boundary - computed : most;
    }
    const int64_t grid = engine_.config().scheduler_block_size;
    const int64_t end = (computed + most) / grid * grid;
    return end > computed ? end - computed : most;
  }

  Random& random_;
  TestEngine engine_;
  bool on_grid_;
  int next_ = 0;
};

TEST(NeverStuck, ARequestOfMaxModelLenFinishesInTheSmallestPoolThatSizingAccepts) {
  int models = 0;
  int hybrid = 0;
  int partial = 0;
  int reused = 0;
  int inside = 0;
  int split = 0;
  constexpr int kSeeds = kSanitized ? 800 : 3000;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Random random(seed);
    const auto layers = RandomLayers(random);
    const int64_t ranks = Pick(random, 0, 3) == 0 ? 2 : 1;
    const auto config = SmallestCache(layers, RandomLimits(random), ranks);
    if (!config.ok()) {
      EXPECT_FALSE(config.status().message().empty());
      continue;
    }
    SCOPED_TRACE("seed " + std::to_string(seed));
    ++models;
    hybrid += config->groups.size() > 1 ? 1 : 0;
    split += ranks > 1 ? 1 : 0;
    partial += PartialHitsEnabled(*config) ? 1 : 0;
    LoneRequest lone(random, *config, Pick(random, 0, 3) != 0);
    // The prompts are prefixes of one text, and the last prompt is the whole text. So a hit can end
    // at the end of any earlier prompt.
    std::vector<TokenId> text(static_cast<size_t>(config->max_model_len));
    for (TokenId& token : text) token = Pick(random, 0, 3);
    for (int round = 0; round < 5; ++round) {
      const auto end = round == 4 ? text.end() : text.begin() + Pick(random, 1, std::ssize(text));
      const auto hit = lone.Run({text.begin(), end});
      ASSERT_TRUE(hit) << "round " << round;
      reused += *hit > 0 ? 1 : 0;
      inside += *hit % config->scheduler_block_size != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(models, kSeeds / 3);
  EXPECT_GT(hybrid, kSeeds / 6);
  EXPECT_GT(partial, kSeeds / 60);
  EXPECT_GT(reused, kSeeds / 6);
  EXPECT_GT(inside, kSeeds / 60);
  EXPECT_GT(split, kSeeds / 60);
}

// CanEverFit and sizing count the same blocks.
TEST(NeverStuck, SizingAndCanEverFitAgree) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const auto config = SmallestCache(RandomLayers(random), RandomLimits(random));
    if (!config.ok()) continue;
    TestEngine engine(*config);
    EXPECT_TRUE(engine.cache().CanEverFit(config->max_model_len));
    CacheConfig smaller = *config;
    smaller.num_blocks = RequiredBlocks(*config, config->max_model_len, 0) - 1;
    EXPECT_FALSE(TestEngine(smaller).cache().CanEverFit(config->max_model_len));
  }
}

}  // namespace
}  // namespace kvcast::engine
