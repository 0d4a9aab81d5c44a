// KV-cache sizing: computes the number of blocks of the pool, and the maximum length of a request,
// from the memory of the workers.
//
// The functions count blocks with the formulas of cache_spec.h, which run-time admission also uses.
// A request length that start-up accepts is therefore admitted later. All functions are pure and
// thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"
#include "kvcast/spec/kv_cache_groups.h"

namespace kvcast {

// Memory of one worker.
struct WorkerMemory {
  int64_t available_bytes = 0;      // available for the KV cache
  std::vector<std::string> layers;  // layers of its pipeline stage; empty: all layers
};

// Memory of all workers of one engine.
struct PoolMemory {
  std::vector<WorkerMemory> workers;               // the smallest pool determines num_blocks
  std::optional<int64_t> num_gpu_blocks_override;  // replaces the number that fits the memory
  // True: max_model_len is the limit of the model, and SizeCache may lower it to fit the memory.
  bool auto_fit_max_model_len = false;
};

// Returns `config` with the groups and num_blocks, validated. With auto_fit_max_model_len,
// max_model_len becomes the longest length, up to its given value, for which the pool is large
// enough. A model without layers gets one block (the null block) and no groups; this config is not
// validated.
//
// The pool must hold MaxBlocksPerRequest + ReservedBlocks + MaxCopyBlocks. vLLM does not count
// MaxCopyBlocks and the blocks of attention sinks. In vLLM, an accepted request can therefore wait
// without end.
//
// Errors: kInvalidArgument for an invalid value; kExhausted if the memory is too small. If
// max_model_len is too large, the message states the number of blocks that this length needs, and
// the longest length that fits.
Result<CacheConfig> SizeCache(const KvCacheGroups& groups, const PoolMemory& memory,
                              CacheConfig config);

// The number of requests of max_model_len tokens that the pool holds at a time: num_blocks /
// MaxBlocksPerRequest. 0 if a request needs no block. REQUIRES: a validated config.
double MaxConcurrency(const CacheConfig& config);

// The settings that determine how many batches are scheduled before the first of them is processed.
struct BatchOverlap {
  int64_t pipeline_parallel = 1;
  bool async_scheduling = false;
  bool v2_model_runner = false;
};

// CacheConfig::max_in_flight_tokens: the number of batches in flight times max_num_batched_tokens.
// There is one batch per pipeline stage. Asynchronous scheduling adds one batch. With the v1
// runner, asynchronous scheduling is possible only with one stage. Error: kInvalidArgument; the
// message names the field.
Result<int64_t> MaxInFlightTokens(const BatchOverlap& overlap, int64_t max_num_batched_tokens);

}  // namespace kvcast
