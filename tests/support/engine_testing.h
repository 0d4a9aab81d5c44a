// Shared parts of the engine tests: small configurations, requests, and a manager whose invariants
// are checked after each allocation, free and eviction.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/hash/block_hash.h"
#include "src/engine/block_pool.h"

namespace kvcast::engine {

using Ids = std::vector<uint32_t>;
using IdLists = std::vector<Ids>;

inline constexpr GroupIdx kGroup0{0};
inline constexpr GroupIdx kGroup1{1};
inline constexpr GroupIdx kGroup2{2};

inline GroupSpec Full(int64_t block_size = 16) { return {.block_size = block_size}; }
inline GroupSpec Window(int64_t window, int64_t block_size = 16) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}
inline GroupSpec Chunked(int64_t chunk, int64_t block_size = 16) {
  return {.kind = SpecKind::kChunkedLocalAttention, .block_size = block_size, .chunk_size = chunk};
}
inline GroupSpec Mamba(MambaMode mode, int64_t block_size = 16) {
  return {.kind = SpecKind::kMamba, .block_size = block_size, .mamba_mode = mode};
}
inline GroupSpec Eagle(GroupSpec spec) {
  spec.eagle = true;
  return spec;
}

inline CacheConfig Config(std::vector<GroupSpec> groups, int64_t num_blocks) {
  CacheConfig config;
  config.groups = std::move(groups);
  config.num_blocks = num_blocks;
  return config;
}

// Returns `count` token ids, starting at `first`.
inline std::vector<TokenId> Tokens(int64_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline std::vector<TokenId> Concat(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

inline CacheRequest Request(std::string id, std::vector<TokenId> tokens) {
  CacheRequest request;
  request.id = std::move(id);
  request.tokens = std::move(tokens);
  request.prompt_tokens = static_cast<int64_t>(request.tokens.size());
  return request;
}

inline Ids ToIds(std::span<const BlockId> blocks) {
  Ids ids;
  for (const BlockId block : blocks) ids.push_back(block.value);
  return ids;
}
inline IdLists ToIds(const std::vector<std::vector<BlockId>>& groups) {
  IdLists lists;
  for (const auto& blocks : groups) lists.push_back(ToIds(blocks));
  return lists;
}

inline std::vector<BlockId> ToBlocks(const Ids& ids) {
  std::vector<BlockId> blocks;
  for (const uint32_t id : ids) blocks.push_back(BlockId(id));
  return blocks;
}

// Returns options of a pool, for tests that use no manager.
inline PoolOptions Pool(int64_t num_blocks, int64_t hash_block_size) {
  PoolOptions options;
  options.num_blocks = num_blocks;
  options.hash_block_size = hash_block_size;
  return options;
}

// Returns a request with an artificial hash chain: the first byte of digest i is i + 1, the last
// byte is i.
inline CacheRequest HashedRequest(int64_t tokens, int64_t hash_block_size) {
  CacheRequest request = Request("hashed", Tokens(tokens));
  for (int64_t i = 0; i < tokens / hash_block_size; ++i) {
    Digest digest;
    digest.size = 32;
    digest.data[0] = static_cast<uint8_t>(i + 1);
    digest.data[31] = static_cast<uint8_t>(i);
    request.chain.push_back(digest);
  }
  return request;
}

// Returns the hash that events have for the block at this index of the request's chain.
inline BlockHash EventHashOf(const CacheRequest& request, size_t index) {
  return ToEventHash(request.chain[index], EventHashForm::kInt64);
}

inline std::vector<Event> TakeEvents(BlockPool& pool) {
  std::vector<Event> events;
  pool.events().Drain([&events](const auto& event) { AppendEvents(event, events); });
  return events;
}

// Returns the positions of the request's blocks that are cached for the group.
inline Ids CachedPositions(const CacheManager& cache, const CacheRequest& request, GroupIdx group) {
  const int64_t units =
      cache.config().groups[group.value].block_size / cache.config().hash_block_size;
  const auto keys = cache.CachedKeys(group);
  Ids positions;
  for (int64_t i = 0; i < static_cast<int64_t>(request.chain.size()) / units; ++i) {
    for (const CachedKey& key : keys) {
      if (key.digest == BlockDigest(request.chain, i, units)) {
        positions.push_back(static_cast<uint32_t>(i));
      }
    }
  }
  return positions;
}

// The test double of an engine: a manager, and the calls that an engine makes for one request.
class TestEngine {
 public:
  explicit TestEngine(const CacheConfig& config, bool events = true)
      : TestEngine(config, EventOptions{.enabled = events}) {}
  TestEngine(const CacheConfig& config, const EventOptions& events,
             HashAlgorithm algorithm = HashAlgorithm::kSha256Cbor,
             std::string_view seed = kDefaultHashSeed) {
    auto hasher = BlockHasher::FromSeed(algorithm, seed);
    auto cache = CacheManager::Create(config, std::move(hasher).value(), events);
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    cache_ = std::move(cache).value();
  }

  CacheManager& cache() { return *cache_; }
  const CacheConfig& config() const { return cache_->config(); }
  int64_t free_blocks() const { return cache_->usage().free_blocks; }

  PrefixHit Lookup(CacheRequest& request) { return cache_->GetComputedBlocks(request); }

  // Looks up the request and allocates its remaining tokens. Returns the new blocks per group.
  IdLists Start(CacheRequest& request) {
    const PrefixHit hit = Lookup(request);
    AllocateArgs args;
    args.new_tokens = static_cast<int64_t>(request.tokens.size()) - hit.tokens;
    args.hit = &hit;
    EXPECT_TRUE(Allocate(request, args));
    return last_new_;
  }

  // Allocates a prompt without a lookup.
  IdLists StartWithoutLookup(CacheRequest& request) {
    EXPECT_TRUE(Allocate(request, {.new_tokens = static_cast<int64_t>(request.tokens.size())}));
    return last_new_;
  }

  bool Allocate(CacheRequest& request, const AllocateArgs& args) {
    std::vector<std::vector<BlockId>> blocks;
    const bool ok = cache_->AllocateSlots(request, args, &blocks);
    last_new_ = ToIds(blocks);
    Check();
    return ok;
  }

  // One decode step: appends a sampled token and allocates its slot.
  bool Decode(CacheRequest& request, TokenId token, int64_t in_flight = 0) {
    const auto computed = static_cast<int64_t>(request.tokens.size());
    request.tokens.push_back(token);
    return Allocate(request,
                    {.computed_tokens = computed, .new_tokens = 1, .in_flight_tokens = in_flight});
  }

  void Free(CacheRequest& request) {
    cache_->Free(request);
    Check();
  }

  // Evicts the block from the prefix cache.
  void Evict(uint32_t block) {
    const BlockId id(block);
    EXPECT_TRUE(cache_->EvictBlocks({&id, 1}).ok());
    Check();
  }

  Ids Table(const CacheRequest& request, uint32_t group) const {
    return ToIds(cache_->BlockTable(request, GroupIdx(group)));
  }
  const IdLists& last_new() const { return last_new_; }

 private:
  void Check() const {
    const Status status = cache_->CheckInvariants();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  std::unique_ptr<CacheManager> cache_;
  IdLists last_new_;
};

inline std::vector<BlockId> Allocated(BlockPool& pool, int64_t n) {
  std::vector<BlockId> blocks;
  pool.Allocate(n, blocks);
  return blocks;
}

}  // namespace kvcast::engine
