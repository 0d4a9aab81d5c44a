// ValidateCacheConfig fills in defaults, and every error names the wrong field.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kvcast/spec/cache_spec.h"

namespace kvcast {
namespace {

using ::testing::HasSubstr;

GroupSpec FullGroup(int64_t block_size = 16) { return {.block_size = block_size}; }
GroupSpec WindowGroup(int64_t block_size = 16) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = 64};
}
GroupSpec MambaGroup(int64_t block_size, MambaMode mode) {
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
  const CacheConfig config = Valid({FullGroup(48), WindowGroup(32)});
  EXPECT_EQ(config.hash_block_size, 16);
  EXPECT_EQ(config.scheduler_block_size, 96);
  EXPECT_EQ(HitAlignment(config), 96);
}

TEST(CacheConfig, GroupsOutsidePrefixCachingDoNotEnterTheHashUnit) {
  GroupSpec scratch = WindowGroup(24);
  scratch.prefix_cacheable = false;
  const CacheConfig config = Valid({FullGroup(48), WindowGroup(32), scratch});
  EXPECT_EQ(config.hash_block_size, 16);
  EXPECT_EQ(config.scheduler_block_size, 96);
  scratch.block_size = 20;
  EXPECT_EQ(Valid({FullGroup(48), scratch}).hash_block_size, 48);
  EXPECT_EQ(Valid({FullGroup(48), scratch}).scheduler_block_size, 240);
  EXPECT_EQ(Valid({scratch, WindowGroup(32)}).hash_block_size, 32);
}

TEST(CacheConfig, GroupsOutsidePrefixCachingDoNotKeepHitsFromEndingInsideBlocks) {
  GroupSpec scratch = WindowGroup(32);
  scratch.prefix_cacheable = false;
  CacheConfig config = Config({FullGroup(64), MambaGroup(64, MambaMode::kAlign), scratch});
  config.hash_block_size = 16;
  EXPECT_TRUE(PartialHitsEnabled(*ValidateCacheConfig(config)));
}

TEST(CacheConfig, MambaThatIsNotAlignedNeedsOneHashPerGridStep) {
  EXPECT_EQ(Valid({FullGroup(32), MambaGroup(32, MambaMode::kAll)}).hash_block_size, 32);
  EXPECT_THAT(ErrorOf({FullGroup(16), MambaGroup(32, MambaMode::kAll)}, [](CacheConfig&) {}),
              HasSubstr("groups[0].block_size"));
}

TEST(CacheConfig, HitsMayEndInsideBlocksWithAlignedMamba) {
  CacheConfig config = Config({FullGroup(64), MambaGroup(64, MambaMode::kAlign)});
  config.hash_block_size = 16;
  auto valid = ValidateCacheConfig(config);
  ASSERT_TRUE(valid.ok());
  EXPECT_TRUE(PartialHitsEnabled(*valid));
  EXPECT_EQ(HitAlignment(*valid), 16);
  config.groups.push_back(WindowGroup(32));
  valid = ValidateCacheConfig(config);
  ASSERT_TRUE(valid.ok());
  EXPECT_FALSE(PartialHitsEnabled(*valid)) << "a window group looks up whole blocks only";
  config.rules = EngineRules::kMain2026May;
  EXPECT_FALSE(PartialHitsEnabled(*ValidateCacheConfig(config)));
}

// With lookahead hashes, no group drops a block for its draft head.
TEST(CacheConfig, EagleExcludesLookaheadHashes) {
  GroupSpec eagle = FullGroup();
  eagle.eagle = true;
  const auto lookahead = [](CacheConfig& c) { c.chain_form.lookahead = 1; };
  EXPECT_THAT(ErrorOf({FullGroup(), eagle}, lookahead),
              HasSubstr("groups[1].eagle is not possible with chain_form.lookahead"));
  CacheConfig without = Config({FullGroup()});
  lookahead(without);
  EXPECT_TRUE(ValidateCacheConfig(without).ok());
}

TEST(CacheConfig, EagleOfOneGroupIsSharedByGroupsOfEqualSpec) {
  GroupSpec eagle = WindowGroup();
  eagle.eagle = true;
  const CacheConfig config = Valid({FullGroup(), WindowGroup(), eagle});
  EXPECT_FALSE(config.groups[0].eagle);
  EXPECT_TRUE(config.groups[1].eagle);
}

TEST(CacheConfig, ErrorsNameTheFieldOfAGroup) {
  const auto none = [](CacheConfig&) {};
  GroupSpec group = FullGroup(0);
  EXPECT_THAT(ErrorOf({FullGroup(), group}, none), HasSubstr("groups[1].block_size"));
  group = WindowGroup();
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
  EXPECT_THAT(ErrorOf({group, FullGroup(32)}, none), HasSubstr("must equal scheduler_block_size"));
}

TEST(CacheConfig, ErrorsNameTheScalarField) {
  EXPECT_THAT(ErrorOf({}, [](CacheConfig&) {}), HasSubstr("groups"));
  EXPECT_THAT(ErrorOf({FullGroup()}, [](CacheConfig& c) { c.num_blocks = 0; }),
              HasSubstr("num_blocks"));
  EXPECT_THAT(ErrorOf({FullGroup()}, [](CacheConfig& c) { c.max_model_len = -1; }),
              HasSubstr("max_model_len"));
  EXPECT_THAT(ErrorOf({FullGroup()}, [](CacheConfig& c) { c.watermark = 1.5; }),
              HasSubstr("watermark"));
  EXPECT_THAT(ErrorOf({FullGroup()}, [](CacheConfig& c) { c.scheduler_block_size = 24; }),
              HasSubstr("scheduler_block_size (24)"));
  EXPECT_THAT(ErrorOf({FullGroup()}, [](CacheConfig& c) { c.hash_block_size = 8; }),
              HasSubstr("hash_block_size must equal"));
  EXPECT_THAT(
      ErrorOf({FullGroup(), WindowGroup(32)}, [](CacheConfig& c) { c.hash_block_size = 32; }),
      HasSubstr("groups[0].block_size"));
  EXPECT_THAT(ErrorOf({FullGroup(int64_t{1} << 31), WindowGroup(3)}, [](CacheConfig&) {}),
              HasSubstr("no common multiple"));
}

// With alignment 32, retention 33 (not a multiple) and -32 (negative) are errors. Retention 16 with
// only full attention is an error. Retention 0 is valid.
TEST(CacheConfig, RetentionMustFitTheGridAndHaveAnEffect) {
  const std::vector<GroupSpec> hybrid = {FullGroup(32), WindowGroup(16)};
  EXPECT_THAT(ErrorOf(hybrid, [](CacheConfig& c) { c.retention_interval = 33; }),
              HasSubstr("retention_interval (33) must be a multiple"));
  EXPECT_THAT(ErrorOf(hybrid, [](CacheConfig& c) { c.retention_interval = -32; }),
              HasSubstr("must not be negative"));
  EXPECT_THAT(ErrorOf({FullGroup()}, [](CacheConfig& c) { c.retention_interval = 16; }),
              HasSubstr("no effect"));
  CacheConfig config = Config({FullGroup()});
  config.retention_interval = 0;
  EXPECT_TRUE(ValidateCacheConfig(config).ok());
}

TEST(CacheConfig, MultiModuleMtpMustFitTheGrid) {
  GroupSpec eagle = FullGroup();
  eagle.eagle = true;
  EXPECT_THAT(ErrorOf({eagle}, [](CacheConfig& c) { c.mtp_lookahead_tokens = 17; }),
              HasSubstr("mtp_lookahead_tokens"));
}

TEST(CacheConfig, DecodeContextParallelTakesFullAttentionAndMambaOnly) {
  const auto dcp = [](CacheConfig& config) { config.decode_context_parallel = 2; };
  EXPECT_THAT(ErrorOf({FullGroup(), WindowGroup()}, dcp), HasSubstr("groups[1].kind"));
  EXPECT_THAT(ErrorOf({FullGroup(15)}, dcp), HasSubstr("groups[0].block_size"));
  EXPECT_THAT(
      ErrorOf({FullGroup()}, [](CacheConfig& config) { config.decode_context_parallel = 0; }),
      HasSubstr("decode_context_parallel"));
  CacheConfig config = Config({FullGroup(32), MambaGroup(16, MambaMode::kAlign)});
  ASSERT_TRUE(ValidateCacheConfig(config).ok());
  EXPECT_FALSE(PartialHitsEnabled(*ValidateCacheConfig(config)));
  dcp(config);
  EXPECT_TRUE(PartialHitsEnabled(*ValidateCacheConfig(config)));
}

TEST(CacheConfig, EncoderTokensHaveARange) {
  EXPECT_THAT(ErrorOf({FullGroup()}, [](CacheConfig& config) { config.max_encoder_tokens = -1; }),
              HasSubstr("max_encoder_tokens"));
}

}  // namespace
}  // namespace kvcast
