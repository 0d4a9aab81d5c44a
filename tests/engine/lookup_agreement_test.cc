// The engine's fixed point over the groups and the router's rule over bitmaps agree: on any pool
// both give the same reusable prefix.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "kvcast/spec/reuse.h"
#include "src/engine/block_pool.h"
#include "src/engine/prefix_lookup.h"
#include "tests/engine/random_pick.h"

namespace kvcast::engine {
namespace {

GroupSpec RandomGroup(Random& random, int64_t hash_block_size, bool allow_chunked) {
  GroupSpec group;
  group.block_size = hash_block_size << Pick(random, 0, 2);
  switch (Pick(random, 0, allow_chunked ? 3 : 2)) {
    case 0:
      group.kind = SpecKind::kFullAttention;
      break;
    case 1:
      group.kind = SpecKind::kSlidingWindow;
      group.sliding_window = Pick(random, 1, hash_block_size * 12);
      break;
    case 2:
      group.kind = SpecKind::kMamba;
      group.mamba_mode = MambaMode::kAlign;
      break;
    default:
      group.kind = SpecKind::kChunkedLocalAttention;
      group.block_size = hash_block_size;
      group.chunk_size = hash_block_size * Pick(random, 1, 6);
  }
  group.eagle = group.kind != SpecKind::kChunkedLocalAttention && Pick(random, 0, 2) == 0;
  return group;
}

CacheConfig RandomConfig(Random& random) {
  CacheConfig config;
  const int64_t hash_block_size = 4;
  const bool one_size = Pick(random, 0, 1) == 0;
  const int64_t count = Pick(random, 1, 4);
  for (int64_t i = 0; i < count; ++i) {
    config.groups.push_back(RandomGroup(random, hash_block_size, one_size));
    if (one_size) config.groups.back().block_size = hash_block_size;
  }
  if (Pick(random, 0, 2) == 0) config.groups.push_back(config.groups[0]);
  // If there are several groups, the last group may be outside prefix caching.
  if (config.groups.size() > 1) config.groups.back().prefix_cacheable = Pick(random, 0, 3) != 0;
  const EngineRules rules[] = {EngineRules::kMain2026August, EngineRules::kV032};
  config.rules = rules[Pick(random, 0, 1)];
  if (config.groups.size() > 1) config.hash_block_size = hash_block_size;
  config.num_blocks = 2000;
  return config;
}

CacheRequest RequestWithChain(int64_t units, int64_t hash_block_size) {
  CacheRequest request;
  request.tokens.resize(static_cast<size_t>(units * hash_block_size));
  for (int64_t i = 0; i < units; ++i) {
    Digest digest;
    digest.size = 32;
    digest.data[0] = static_cast<uint8_t>(i);
    digest.data[1] = static_cast<uint8_t>(i >> 8);
    request.chain.push_back(digest);
  }
  return request;
}

// Caches a random selection of the request's blocks: 50 % to 100 % of the blocks of each group. If
// hits may end inside a block, also caches partial entries.
void FillPool(Random& random, const CacheConfig& config, const CacheRequest& request,
              BlockPool& pool) {
  const int64_t tokens = static_cast<int64_t>(request.tokens.size());
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupIdx group(static_cast<uint32_t>(g));
    const int64_t block_size = config.groups[g].block_size;
    const int64_t blocks = tokens / block_size;
    std::vector<BlockId> table;
    pool.Allocate(blocks, table);
    Bitmap keep(blocks);
    const int64_t holes = Pick(random, 0, 5);
    for (int64_t i = 0; i < blocks; ++i) {
      if (Pick(random, 0, 9) >= holes) keep.Set(i);
    }
    pool.CacheFullBlocks({request, group, block_size, table, 0, blocks, &keep});
    std::vector<BlockId> partial;
    pool.Allocate(blocks, partial);
    for (int64_t i = 0; PartialHitsEnabled(config) && i < blocks; ++i) {
      const int64_t end = i * block_size + Pick(random, 1, block_size / 4) * 4;
      if (Pick(random, 0, 2) == 0) {
        pool.CachePartialBlock({request, group, partial[static_cast<size_t>(i)], end});
      }
    }
  }
}

std::vector<GroupResidency> ResidencyOf(const CacheConfig& config, const CacheRequest& request,
                                        const BlockPool& pool) {
  std::vector<GroupResidency> residency;
  const int64_t hash_block_size = config.hash_block_size;
  const auto units = static_cast<int64_t>(request.chain.size());
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupIdx group(static_cast<uint32_t>(g));
    GroupResidency one{config.groups[g], {}, {}};
    const int64_t per_block = one.spec.block_size / hash_block_size;
    one.blocks.Resize(units / per_block);
    for (int64_t j = 0; j < units / per_block; ++j) {
      if (pool.FindCached(BlockDigest(request.chain, j, per_block), group)) one.blocks.Set(j);
    }
    if (PartialHitsEnabled(config)) one.partial_ends.Resize(units);
    for (int64_t i = 0; i < one.partial_ends.size(); ++i) {
      const bool inside = (i + 1) % per_block != 0;
      if (inside && pool.FindCached(request.chain[static_cast<size_t>(i)], group)) {
        one.partial_ends.Set(i);
      }
    }
    residency.push_back(std::move(one));
  }
  return residency;
}

std::string Describe(const CacheConfig& config) {
  std::string text;
  for (const GroupSpec& group : config.groups) {
    text += std::string(SpecKindName(group.kind)) + " bs " + std::to_string(group.block_size) +
            " w " + std::to_string(group.sliding_window) + " c " +
            std::to_string(group.chunk_size) + (group.eagle ? " eagle; " : "; ");
  }
  return text;
}

TEST(LookupAgreement, FixedPointOverGroupsEqualsReusablePrefixOnRandomPools) {
  int hits = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    Random random(seed);
    const auto config = ValidateCacheConfig(RandomConfig(random));
    if (!config.ok()) continue;
    const CacheRequest request = RequestWithChain(Pick(random, 4, 80), config->hash_block_size);
    PoolOptions options;
    options.num_blocks = config->num_blocks;
    options.hash_block_size = config->hash_block_size;
    BlockPool pool(options);
    FillPool(random, *config, request, pool);
    PrefixLookup lookup(*config, pool);
    const auto residency = ResidencyOf(*config, request, pool);
    for (int probe = 0; probe < 4; ++probe) {
      const auto tokens = static_cast<int64_t>(request.tokens.size());
      const int64_t max_tokens = Pick(random, 0, tokens);
      const PrefixHit engine = lookup.Find(request.chain, max_tokens);
      const int64_t eagle_limit =
          EagleLimit(config->rules, config->groups.size(), max_tokens, tokens);
      const Reuse router = ReusablePrefix(residency, config->hash_block_size, HitAlignment(*config),
                                          max_tokens, eagle_limit);
      EXPECT_EQ(engine.tokens, router.tokens)
          << "seed " << seed << " max " << max_tokens << ": " << Describe(*config);
      EXPECT_EQ(lookup.FindPerGroup(request.chain, max_tokens), router.per_group_tokens)
          << "seed " << seed << " max " << max_tokens << ": " << Describe(*config);
      hits += engine.tokens > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(hits, 2000);
}

}  // namespace
}  // namespace kvcast::engine
