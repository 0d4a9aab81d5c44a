// Sizing computes the number of blocks of a pool, and start-up accepts only pools that are large
// enough.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/kv_cache_sizing.h"

#include <gmock/gmock.h>

#include "tests/spec/layer_testing.h"

namespace kvcast {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPage = 4096;  // bytes of a FullLayer or WindowLayer page at block size 16

CacheConfig Limits(int64_t max_model_len, int64_t max_in_flight_tokens) {
  CacheConfig config;
  config.max_model_len = max_model_len;
  config.max_in_flight_tokens = max_in_flight_tokens;
  return config;
}

PoolMemory Bytes(int64_t bytes) { return {.workers = {{.available_bytes = bytes}}}; }

CacheConfig Sized(const std::vector<LayerSpec>& layers, const PoolMemory& memory,
                  const CacheConfig& limits) {
  auto sized = SizeCache(GroupsOf(layers), memory, limits);
  EXPECT_TRUE(sized.ok()) << sized.status().ToString();
  return sized.ok() ? *std::move(sized) : CacheConfig{};
}

Status ErrorOf(const std::vector<LayerSpec>& layers, const PoolMemory& memory,
               const CacheConfig& limits) {
  const auto sized = SizeCache(GroupsOf(layers), memory, limits);
  EXPECT_FALSE(sized.ok());
  return sized.status();
}

TEST(MaxBlocksPerRequest, EachKindHasItsFormula) {
  const RequestLimits limits{
      .max_model_len = 16384, .max_in_flight_tokens = 1024, .max_encoder_tokens = 1500};
  const auto blocks = [&](GroupSpec spec) { return MaxBlocksPerRequest(spec, limits); };
  EXPECT_EQ(blocks({}), 1024);
  EXPECT_EQ(blocks({.kind = SpecKind::kMlaAttention, .block_size = 64}), 256);
  EXPECT_EQ(blocks({.kind = SpecKind::kSlidingWindow, .sliding_window = 1024}), 129);
  EXPECT_EQ(
      blocks(
          {.kind = SpecKind::kSlidingWindow, .sliding_window = 1024, .extra_retained_tokens = 16}),
      130);
  EXPECT_EQ(blocks({.kind = SpecKind::kChunkedLocalAttention, .chunk_size = 8192}), 576);
  GroupSpec mamba{.kind = SpecKind::kMamba, .speculative_blocks = 3};
  mamba.mamba_mode = MambaMode::kAll;
  EXPECT_EQ(blocks(mamba), 1024 + 3);
  mamba.mamba_mode = MambaMode::kAlign;
  EXPECT_EQ(blocks(mamba), 2 + 3);
  mamba.mamba_mode = MambaMode::kNone;
  mamba.block_size = 16384;
  EXPECT_EQ(blocks(mamba), 1 + 3);
  EXPECT_EQ(blocks({.kind = SpecKind::kCrossAttention}), 94);
  EXPECT_EQ(blocks({.kind = SpecKind::kEncoderOnlyAttention}), 0);
}

TEST(MaxMemoryUsageBytes, IsBlocksTimesPage) {
  EXPECT_EQ(*MaxMemoryUsageBytes(FullLayer("f"), {.max_model_len = 100}), 7 * kPage);
  EXPECT_EQ(*MaxMemoryUsageBytes(WindowLayer("s", 1024),
                                 {.max_model_len = 16384, .max_in_flight_tokens = 2048}),
            193 * kPage);
  EXPECT_FALSE(MaxMemoryUsageBytes(FullLayer("f"), {.max_model_len = -1}).ok());
}

// Each rank needs ceil(ceil(length / ranks) / block_size) blocks.
TEST(MaxBlocksPerRequest, DecodeContextParallelDividesTheSequence) {
  const KvCacheGroups groups = GroupsOf(FullAndWindow(1, 0), {.decode_context_parallel = 3});
  for (const int64_t length : {1, 16, 48, 49, 1000}) {
    EXPECT_EQ(MaxBlocksPerRequest(groups.groups[0].spec, {.max_model_len = length}),
              CeilDiv(CeilDiv(length, 3), 16));
  }
}

TEST(SizeCache, NumBlocksIsMemoryOverPagesOfAGroup) {
  // Groups (f1,f2),(s1,s3),(s2,s4): a block is two pages.
  const CacheConfig config =
      Sized(FullAndWindow(2, 4), Bytes(2 * kPage * 100 + 2 * kPage - 1), Limits(512, 64));
  EXPECT_EQ(config.num_blocks, 100);
  EXPECT_EQ(config.groups.size(), 3u);
  EXPECT_EQ(config.hash_block_size, 16);
}

// The null block is reserved: 512 tokens with block size 16 need 33 blocks; 32 are rejected.
TEST(SizeCache, TheNullBlockIsReserved) {
  const auto layers = FullAndWindow(1, 0);
  EXPECT_EQ(Sized(layers, Bytes(33 * kPage), Limits(512, 64)).num_blocks, 33);
  const Status status = ErrorOf(layers, Bytes(32 * kPage), Limits(512, 64));
  EXPECT_EQ(status.code(), StatusCode::kExhausted);
  EXPECT_EQ(status.message(),
            "max_model_len 512 needs 33 blocks, but the pool has 32; the longest max_model_len "
            "that fits is 496");
}

// Auto-fit with 64 blocks gives 63*16 tokens.
TEST(SizeCache, AutoFitTakesTheLongestThatFitsBesideTheNullBlock) {
  PoolMemory memory = Bytes(64 * kPage);
  memory.auto_fit_max_model_len = true;
  EXPECT_EQ(Sized(FullAndWindow(1, 0), memory, Limits(131072, 64)).max_model_len, 63 * 16);
  EXPECT_EQ(Sized(FullAndWindow(1, 0), memory, Limits(500, 64)).max_model_len, 500)
      << "never more than max_model_len of the model";
  memory.workers[0].available_bytes = kPage;
  const Status status = ErrorOf(FullAndWindow(1, 0), memory, Limits(500, 64));
  EXPECT_EQ(status.code(), StatusCode::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("one token does not fit in a pool of 1 blocks"));
}

// Maximum concurrency at length 16384: 1.5 for 1536 blocks of full attention, 3 for 387 blocks of
// SWA with window 1024, and 3 for 3459 blocks of the hybrid model.
TEST(SizeCache, MaxConcurrencyIsThePoolOverTheBlocksOfARequest) {
  const CacheConfig limits = Limits(16384, 1024);
  const auto window = [](int64_t count) {
    std::vector<LayerSpec> layers;
    AddLayers(layers, "s", static_cast<int>(count),
              [](std::string name) { return WindowLayer(std::move(name), 1024); });
    return layers;
  };
  EXPECT_DOUBLE_EQ(MaxConcurrency(Sized(FullAndWindow(1, 0), Bytes(1536 * kPage), limits)), 1.5);
  EXPECT_DOUBLE_EQ(MaxConcurrency(Sized(window(1), Bytes(387 * kPage), limits)), 3);
  std::vector<LayerSpec> hybrid = window(1);
  hybrid.push_back(FullLayer("f"));
  EXPECT_DOUBLE_EQ(MaxConcurrency(Sized(hybrid, Bytes(3459 * kPage), limits)), 3);
}

TEST(SizeCache, TheOverrideWinsOverMemory) {
  PoolMemory memory = Bytes(1000 * kPage);
  memory.num_gpu_blocks_override = 40;
  EXPECT_EQ(Sized(FullAndWindow(1, 0), memory, Limits(512, 64)).num_blocks, 40);
  memory.num_gpu_blocks_override = 32;
  EXPECT_EQ(ErrorOf(FullAndWindow(1, 0), memory, Limits(512, 64)).code(), StatusCode::kExhausted);
  memory.num_gpu_blocks_override = 0;
  EXPECT_THAT(ErrorOf(FullAndWindow(1, 0), memory, Limits(512, 64)).message(),
              HasSubstr("num_blocks"));
}

TEST(SizeCache, TheSmallestWorkerCountsWithItsOwnLayers) {
  PoolMemory memory;
  memory.workers = {{.available_bytes = 100 * kPage}, {.available_bytes = 90 * kPage}};
  EXPECT_EQ(Sized(FullAndWindow(1, 0), memory, Limits(512, 64)).num_blocks, 90);
  // Groups (f1..f3),(s1,s3,s5),(s2,s4,s6): the first stage has two thirds of each group.
  memory.workers[0].layers = {"f1", "f2", "s1", "s2", "s3", "s4"};
  memory.workers[1].layers = {"f3", "s5", "s6"};
  EXPECT_EQ(Sized(FullAndWindow(3, 6), memory, Limits(256, 64)).num_blocks, 50);
  memory.workers[1].layers = {"f4"};
  EXPECT_THAT(ErrorOf(FullAndWindow(3, 6), memory, Limits(256, 64)).message(),
              HasSubstr("layer f4 is in no group"));
}

TEST(SizeCache, AModelWithoutLayersHasTheNullBlockOnly) {
  const CacheConfig config = Sized({}, {}, Limits(512, 64));
  EXPECT_EQ(config.num_blocks, 1);
  EXPECT_TRUE(config.groups.empty());
}

TEST(SizeCache, SinksAreReservedToo) {
  LayerSpec sink = FullLayer("f");
  sink.spec.kind = SpecKind::kSinkFullAttention;
  sink.spec.sink_tokens = 32;
  EXPECT_EQ(Sized({sink}, Bytes(35 * kPage), Limits(512, 64)).num_blocks, 35);
  EXPECT_EQ(ErrorOf({sink}, Bytes(34 * kPage), Limits(512, 64)).code(), StatusCode::kExhausted);
}

TEST(SizeCache, CrossAttentionHoldsTheEncodersTokens) {
  LayerSpec cross = FullLayer("c");
  cross.spec.kind = SpecKind::kCrossAttention;
  CacheConfig limits = Limits(512, 64);
  limits.max_encoder_tokens = 1500;
  EXPECT_EQ(ErrorOf({FullLayer("f"), cross}, Bytes(126 * kPage), limits).code(),
            StatusCode::kExhausted);
  EXPECT_EQ(Sized({FullLayer("f"), cross}, Bytes(127 * kPage), limits).num_blocks, 127);
}

TEST(SizeCache, MemoryThatHoldsNoBlockIsNamed) {
  const auto layers = FullAndWindow(1, 0);
  EXPECT_THAT(ErrorOf(layers, Bytes(0), Limits(16, 16)).message(), HasSubstr("no memory"));
  EXPECT_THAT(ErrorOf(layers, Bytes(-5), Limits(16, 16)).message(), HasSubstr("no memory"));
  EXPECT_THAT(ErrorOf(layers, Bytes(kPage - 1), Limits(16, 16)).message(),
              HasSubstr("4095 bytes cannot hold a block; a block takes 4096"));
  EXPECT_THAT(ErrorOf(layers, {}, Limits(16, 16)).message(), HasSubstr("workers"));
  EXPECT_FALSE(SizeCache({.groups = {{.spec = {}}}}, Bytes(kPage), Limits(16, 16)).ok())
      << "groups that MakeKvCacheGroups did not make";
}

TEST(SizeCache, ForbiddenConfigurationsAreNamed) {
  EXPECT_THAT(ErrorOf(FullAndWindow(1, 0), Bytes(100 * kPage), Limits(0, 64)).message(),
              HasSubstr("max_model_len"));
  CacheConfig config = Limits(512, 64);
  config.hash_block_size = 5;
  EXPECT_THAT(ErrorOf(FullAndWindow(1, 1), Bytes(100 * kPage), config).message(),
              HasSubstr("hash_block_size"));
}

// Block sizes of 544 (full attention), 544 (Mamba) and 136 (hidden states) give scheduler block
// size 544 and hash_block_size 136.
TEST(SizeCache, HashUnitAndGridOfAModelWithHiddenStates) {
  LayerSpec hidden = MlaLayer("h", 16, 500);
  hidden.hidden_state = true;
  const CacheConfig config = Sized({FullLayer("f", 544), MambaLayer("m", 544, 1000), hidden},
                                   Bytes(int64_t{544} * 256 * 100), Limits(1000, 64));
  EXPECT_EQ(config.scheduler_block_size, 544);
  EXPECT_EQ(config.hash_block_size, 136);
}

TEST(SizeCache, DecodeContextParallelIsPartOfHashUnitAndGrid) {
  const auto sized = [](const std::vector<LayerSpec>& layers) {
    auto config = SizeCache(GroupsOf(layers, {.decode_context_parallel = 2}), Bytes(100 * kPage),
                            Limits(512, 64));
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return *config;
  };
  const CacheConfig full = sized(FullAndWindow(2, 0));
  EXPECT_EQ(full.hash_block_size, 32);
  EXPECT_EQ(full.scheduler_block_size, 32);
  const CacheConfig hybrid = sized({FullLayer("f"), MambaLayer("m", 16, 100)});
  EXPECT_EQ(hybrid.hash_block_size, 16);
  EXPECT_EQ(hybrid.scheduler_block_size, 32);
  EXPECT_TRUE(PartialHitsEnabled(hybrid)) << "Mamba states lie inside the blocks of attention";
  EXPECT_EQ(HitAlignment(hybrid), 16);
}

TEST(MaxInFlightTokens, IsBatchesUnderWayTimesTheirTokens) {
  EXPECT_EQ(*MaxInFlightTokens({}, 8192), 8192);
  EXPECT_EQ(*MaxInFlightTokens({.pipeline_parallel = 4}, 100), 400);
  EXPECT_EQ(*MaxInFlightTokens({.async_scheduling = true}, 100), 200);
  EXPECT_EQ(*MaxInFlightTokens(
                {.pipeline_parallel = 4, .async_scheduling = true, .v2_model_runner = true}, 100),
            500);
  EXPECT_FALSE(MaxInFlightTokens({.pipeline_parallel = 4, .async_scheduling = true}, 100).ok());
  EXPECT_FALSE(MaxInFlightTokens({}, 0).ok());
  EXPECT_FALSE(MaxInFlightTokens({.pipeline_parallel = 1 << 20}, 1 << 20).ok());
}

}  // namespace
}  // namespace kvcast
