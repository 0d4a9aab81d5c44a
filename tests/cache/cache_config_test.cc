// ValidateCacheConfig: what is filled in, and that every error names its field.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kvcast/cache_spec.h"

namespace kvcast {
namespace {

using ::testing::HasSubstr;

GroupSpec Full(int64_t block_size = 16) { return {.block_size = block_size}; }
GroupSpec Window(int64_t block_size = 16) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = 64};
}
GroupSpec Mamba(int64_t block_size, MambaMode mode) {
  return {.kind = SpecKind::kMamba, .block_size = block_size, .mamba_mode = mode};
}

CacheConfig Config(std::vector<GroupSpec> groups) {
  CacheConfig config;
  config.groups = std::move(groups);
  config.num_blocks = 100;
  return config;
}

CacheConfig Valid(std::vector<GroupSpec> groups) {
  auto config = ValidateCacheConfig(Config(std::move(groups)));
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : CacheConfig{};
}

std::string ErrorOf(std::vector<GroupSpec> groups,
                    const std::function<void(CacheConfig&)>& change) {
  CacheConfig config = Config(std::move(groups));
  change(config);
  const auto valid = ValidateCacheConfig(config);
  EXPECT_FALSE(valid.ok());
  EXPECT_EQ(valid.status().code(), StatusCode::kInvalidArgument);
  return valid.status().message();
}

TEST(CacheConfig, HashUnitIsTheDivisorAndTheGridTheMultipleOfAllBlockSizes) {
  const CacheConfig config = Valid({Full(48), Window(32)});
  EXPECT_EQ(config.hash_block_size, 16);
  EXPECT_EQ(config.scheduler_block_size, 96);
  EXPECT_EQ(HitAlignment(config), 96);
}

TEST(CacheConfig, MambaThatIsNotAlignedNeedsOneHashPerGridStep) {
  EXPECT_EQ(Valid({Full(32), Mamba(32, MambaMode::kAll)}).hash_block_size, 32);
  EXPECT_THAT(ErrorOf({Full(16), Mamba(32, MambaMode::kAll)}, [](CacheConfig&) {}),
              HasSubstr("groups[0].block_size"));
}

TEST(CacheConfig, HitsMayEndInsideBlocksWithAlignedMamba) {
  CacheConfig config = Config({Full(64), Mamba(64, MambaMode::kAlign)});
  config.hash_block_size = 16;
  auto valid = ValidateCacheConfig(config);
  ASSERT_TRUE(valid.ok());
  EXPECT_TRUE(PartialHitsEnabled(*valid));
  EXPECT_EQ(HitAlignment(*valid), 16);
  config.groups.push_back(Window(32));
  valid = ValidateCacheConfig(config);
  ASSERT_TRUE(valid.ok());
  EXPECT_FALSE(PartialHitsEnabled(*valid)) << "a window group looks up whole blocks only";
  config.rules = EngineRules::kMain2026May;
  EXPECT_FALSE(PartialHitsEnabled(*ValidateCacheConfig(config)));
}

TEST(CacheConfig, EagleOfOneGroupIsSharedByGroupsOfEqualSpec) {
  GroupSpec eagle = Window();
  eagle.eagle = true;
  const CacheConfig config = Valid({Full(), Window(), eagle});
  EXPECT_FALSE(config.groups[0].eagle);
  EXPECT_TRUE(config.groups[1].eagle);
}

TEST(CacheConfig, ErrorsNameTheFieldOfAGroup) {
  const auto none = [](CacheConfig&) {};
  GroupSpec group = Full(0);
  EXPECT_THAT(ErrorOf({Full(), group}, none), HasSubstr("groups[1].block_size"));
  group = Window();
  group.sliding_window = 0;
  EXPECT_THAT(ErrorOf({group}, none), HasSubstr("groups[0].sliding_window"));
  group = {.kind = SpecKind::kChunkedLocalAttention, .block_size = 16, .chunk_size = 0};
  EXPECT_THAT(ErrorOf({group}, none), HasSubstr("chunk_size"));
  group.chunk_size = 24;
  EXPECT_THAT(ErrorOf({group}, none), HasSubstr("chunk_size (24) must be a multiple"));
  group.chunk_size = 32;
  group.eagle = true;
  EXPECT_THAT(ErrorOf({group}, none), HasSubstr("eagle"));
  group.eagle = false;
  EXPECT_THAT(ErrorOf({group, Full(32)}, none), HasSubstr("must equal scheduler_block_size"));
}

TEST(CacheConfig, ErrorsNameTheScalarField) {
  EXPECT_THAT(ErrorOf({}, [](CacheConfig&) {}), HasSubstr("groups"));
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& c) { c.num_blocks = 0; }), HasSubstr("num_blocks"));
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& c) { c.max_model_len = -1; }),
              HasSubstr("max_model_len"));
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& c) { c.watermark = 1.5; }), HasSubstr("watermark"));
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& c) { c.scheduler_block_size = 24; }),
              HasSubstr("scheduler_block_size (24)"));
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& c) { c.hash_block_size = 8; }),
              HasSubstr("hash_block_size must equal"));
  EXPECT_THAT(ErrorOf({Full(), Window(32)}, [](CacheConfig& c) { c.hash_block_size = 32; }),
              HasSubstr("groups[0].block_size"));
  EXPECT_THAT(ErrorOf({Full(int64_t{1} << 31), Window(3)}, [](CacheConfig&) {}),
              HasSubstr("no common multiple"));
}

// Retention 33 or -32 (A=32): error (multiple, not negative); 16 on full attention only: error; 0:
// ok.
TEST(CacheConfig, RetentionMustFitTheGridAndHaveAnEffect) {
  const std::vector<GroupSpec> hybrid = {Full(32), Window(16)};
  EXPECT_THAT(ErrorOf(hybrid, [](CacheConfig& c) { c.retention_interval = 33; }),
              HasSubstr("retention_interval (33) must be a multiple"));
  EXPECT_THAT(ErrorOf(hybrid, [](CacheConfig& c) { c.retention_interval = -32; }),
              HasSubstr("must not be negative"));
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& c) { c.retention_interval = 16; }),
              HasSubstr("no effect"));
  CacheConfig config = Config({Full()});
  config.retention_interval = 0;
  EXPECT_TRUE(ValidateCacheConfig(config).ok());
}

TEST(CacheConfig, MultiModuleMtpMustFitTheGrid) {
  GroupSpec eagle = Full();
  eagle.eagle = true;
  EXPECT_THAT(ErrorOf({eagle}, [](CacheConfig& c) { c.mtp_lookahead_tokens = 17; }),
              HasSubstr("mtp_lookahead_tokens"));
}

TEST(CacheConfig, DecodeContextParallelTakesFullAttentionAndMambaOnly) {
  const auto dcp = [](CacheConfig& config) { config.decode_context_parallel = 2; };
  EXPECT_THAT(ErrorOf({Full(), Window()}, dcp), HasSubstr("groups[1].kind"));
  EXPECT_THAT(ErrorOf({Full(15)}, dcp), HasSubstr("groups[0].block_size"));
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& config) { config.decode_context_parallel = 0; }),
              HasSubstr("decode_context_parallel"));
  CacheConfig config = Config({Full(32), Mamba(16, MambaMode::kAlign)});
  ASSERT_TRUE(ValidateCacheConfig(config).ok());
  EXPECT_FALSE(PartialHitsEnabled(*ValidateCacheConfig(config)));
  dcp(config);
  EXPECT_TRUE(PartialHitsEnabled(*ValidateCacheConfig(config)));
}

TEST(CacheConfig, EncoderTokensHaveARange) {
  EXPECT_THAT(ErrorOf({Full()}, [](CacheConfig& config) { config.max_encoder_tokens = -1; }),
              HasSubstr("max_encoder_tokens"));
}

}  // namespace
}  // namespace kvcast
