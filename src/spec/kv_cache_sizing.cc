// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/kv_cache_sizing.h"

#include <algorithm>
#include <limits>
#include <set>

#include "src/spec/field_checks.h"

namespace kvcast {
namespace {

using internal::CheckRange;
using internal::FirstError;
using internal::Invalid;
using internal::kMaxTokens;

std::set<std::string> NamesOf(const KvCacheGroups& groups) {
  std::set<std::string> names;
  for (const KvCacheGroup& group : groups.groups) {
    for (const KvCacheLayer& layer : group.layers) names.insert(layer.name);
  }
  return names;
}

// Bytes of one block on one worker.
Result<int64_t> BlockBytes(const KvCacheGroups& groups, const WorkerMemory& worker) {
  if (worker.layers.empty()) return groups.block_bytes;
  const std::set<std::string> names = NamesOf(groups);
  for (const std::string& name : worker.layers) {
    if (names.count(name) == 0) return Invalid("workers: layer " + name + " is in no group");
  }
  return BlockBytesOn(groups, worker.layers);
}

Result<int64_t> BlocksOnWorkers(const KvCacheGroups& groups, const PoolMemory& memory) {
  if (memory.workers.empty()) return Invalid("workers must not be empty");
  int64_t blocks = std::numeric_limits<int64_t>::max();
  for (const WorkerMemory& worker : memory.workers) {
    if (worker.available_bytes <= 0) {
      return Status(StatusCode::kExhausted, "available_bytes: no memory for the KV cache");
    }
    const auto block = BlockBytes(groups, worker);
    if (!block.ok()) return block.status();
    if (*block <= 0) return Invalid("groups: block_bytes must be positive");
    if (worker.available_bytes < *block) {
      return Status(StatusCode::kExhausted,
                    "available_bytes: " + std::to_string(worker.available_bytes) +
                        " bytes cannot hold a block; a block takes " + std::to_string(*block));
    }
    blocks = std::min(blocks, worker.available_bytes / *block);
  }
  return blocks;
}

int64_t BlocksAtStartUp(CacheConfig config, int64_t max_model_len) {
  config.max_model_len = max_model_len;
  return ReservedBlocks(config) + MaxCopyBlocks(config) + MaxBlocksPerRequest(config);
}

// Number of tokens of the longest sequence that the pool can hold, at most max_model_len. 0: one
// token does not fit.
int64_t LongestThatFits(const CacheConfig& config) {
  int64_t fits = 0;
  int64_t too_long = config.max_model_len + 1;
  while (too_long - fits > 1) {
    const int64_t middle = fits + (too_long - fits) / 2;
    (BlocksAtStartUp(config, middle) <= config.num_blocks ? fits : too_long) = middle;
  }
  return fits;
}

Status CheckRoom(const CacheConfig& config) {
  const int64_t needed = BlocksAtStartUp(config, config.max_model_len);
  if (needed <= config.num_blocks) return {};
  return {StatusCode::kExhausted,
          "max_model_len " + std::to_string(config.max_model_len) + " needs " +
              std::to_string(needed) + " blocks, but the pool has " +
              std::to_string(config.num_blocks) + "; the longest max_model_len that fits is " +
              std::to_string(LongestThatFits(config))};
}

}  // namespace

Result<CacheConfig> SizeCache(const KvCacheGroups& groups, const PoolMemory& memory,
                              CacheConfig config) {
  config.groups.clear();
  for (const KvCacheGroup& group : groups.groups) config.groups.push_back(group.spec);
  config.decode_context_parallel = groups.decode_context_parallel;
  config.num_blocks = 1;
  if (config.groups.empty()) return config;

  const auto blocks = BlocksOnWorkers(groups, memory);
  if (!blocks.ok()) return blocks.status();
  config.num_blocks = memory.num_gpu_blocks_override.value_or(*blocks);
  auto valid = ValidateCacheConfig(std::move(config));
  if (!valid.ok()) return valid;
  if (memory.auto_fit_max_model_len) {
    const int64_t longest = LongestThatFits(*valid);
    if (longest == 0) {
      return Status(StatusCode::kExhausted, "max_model_len: one token does not fit in a pool of " +
                                                std::to_string(valid->num_blocks) + " blocks");
    }
    valid->max_model_len = longest;
  }
  const Status room = CheckRoom(*valid);
  return room.ok() ? std::move(valid) : Result<CacheConfig>(room);
}

double MaxConcurrency(const CacheConfig& config) {
  const int64_t blocks = MaxBlocksPerRequest(config);
  return blocks == 0 ? 0 : static_cast<double>(config.num_blocks) / static_cast<double>(blocks);
}

Result<int64_t> MaxInFlightTokens(const BatchOverlap& overlap, int64_t max_num_batched_tokens) {
  const Status status = FirstError({
      CheckRange("pipeline_parallel", overlap.pipeline_parallel, 1, kMaxTokens),
      CheckRange("max_num_batched_tokens", max_num_batched_tokens, 1, kMaxTokens),
  });
  if (!status.ok()) return status;
  int64_t batches = overlap.pipeline_parallel;
  if (overlap.async_scheduling) {
    if (!overlap.v2_model_runner && overlap.pipeline_parallel > 1) {
      return Invalid("async_scheduling with pipeline_parallel needs the v2 model runner");
    }
    ++batches;
  }
  const int64_t tokens = batches * max_num_batched_tokens;
  const Status range =
      CheckRange("batches in flight * max_num_batched_tokens", tokens, 1, kMaxTokens);
  return range.ok() ? Result<int64_t>(tokens) : range;
}

}  // namespace kvcast
