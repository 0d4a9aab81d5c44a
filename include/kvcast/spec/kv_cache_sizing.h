// From KV-cache groups and memory to the pool: how many blocks, and how long a request may be.
//
// Counts blocks with the functions of cache_spec.h that admission uses at run time, so that what
// start-up accepts is admitted later.
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

struct WorkerMemory {
  int64_t available_bytes = 0;      // for the KV cache
  std::vector<std::string> layers;  // those of its pipeline stage; empty: all
};

struct PoolMemory {
  std::vector<WorkerMemory> workers;               // the smallest pool counts for all
  std::optional<int64_t> num_gpu_blocks_override;  // instead of what fits the memory
  bool auto_fit_max_model_len = false;  // max_model_len is what the model can do: lower it to fit
};

// `config` with the groups, num_blocks, and with auto-fit the longest max_model_len for which the
// pool suffices; validated. A model without layers gets one block, the null block, and no groups.
//
// The pool must hold MaxBlocksPerRequest, the blocks nobody can use, and MaxCopyBlocks: vLLM does
// not count the last nor those of attention sinks, and can then wait for ever for a request that it
// accepted. Errors are kInvalidArgument for a wrong value, kExhausted where memory does not
// suffice; they say what would.
Result<CacheConfig> SizeCache(const KvCacheGroups& groups, const PoolMemory& memory,
                              CacheConfig config);

// Requests of max_model_len that the pool holds at a time: num_blocks / MaxBlocksPerRequest.
// 0 if a request needs no block. REQUIRES: a validated config.
double MaxConcurrency(const CacheConfig& config);

// Batches that are scheduled before the first one is processed.
struct BatchOverlap {
  int64_t pipeline_parallel = 1;
  bool async_scheduling = false;
  bool v2_model_runner = false;
};

// CacheConfig::max_in_flight_tokens: batches under way times max_num_batched_tokens. Batches are
// pipeline stages; with asynchronous scheduling one more (v2 runner), or 2 (v1, one stage only).
Result<int64_t> MaxInFlightTokens(const BatchOverlap& overlap, int64_t max_num_batched_tokens);

}  // namespace kvcast
