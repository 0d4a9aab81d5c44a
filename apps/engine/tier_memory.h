// TierMemory: the two pools behind a simulated engine's host tier, the functions that write and
// check the GPU blocks in place of a model, and the backend that copies between the pools.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_device.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::tools {

// A block that holds the word w contains the value w + offset in the 8 bytes at each `offset`.
struct TierMemory {
  std::byte* gpu = nullptr;
  std::byte* host = nullptr;
  size_t host_bytes = 0;
  std::unique_ptr<CopyBackend> backend;

  // `fill` writes word i to block i of the list. `count_wrong` returns the number of blocks that do
  // not hold their word. Fills run in the order of the calls, and before the event that a later
  // computed() returns.
  std::function<void(std::span<const BlockId>, std::span<const uint64_t>)> fill;
  std::function<int64_t(std::span<const BlockId>, std::span<const uint64_t>)> count_wrong;
  // Returns the value for TransferJob::after.
  std::function<void*()> computed;

  std::shared_ptr<void> owner;  // owns the pools
};

struct TierMemoryConfig {
  size_t block_bytes = 0;
  int64_t gpu_blocks = 0;
  int64_t host_blocks = 0;
};

// Both pools are ordinary memory.
Result<TierMemory> MakePlainTierMemory(const TierMemoryConfig& config,
                                       std::unique_ptr<CopyBackend> backend);
// `gpu` is GPU memory, and `host` is pinned host memory.
Result<TierMemory> MakeCudaTierMemory(const TierMemoryConfig& config, const CudaDevice& device);

}  // namespace kvcast::tools
