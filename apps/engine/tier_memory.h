// TierMemory: the two pools behind a simulated engine's host tier, what writes and checks the GPU's
// blocks in the place of a model, and what copies between the two.
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

// A block that holds a word w has w + at in the 8 bytes at offset `at`.
struct TierMemory {
  std::byte* gpu = nullptr;
  std::byte* host = nullptr;
  size_t host_bytes = 0;
  std::unique_ptr<CopyBackend> backend;

  // Block i of the list gets, or should hold, word i. Fills happen in order, and before what
  // computed() gives.
  std::function<void(std::span<const BlockId>, std::span<const uint64_t>)> fill;
  std::function<int64_t(std::span<const BlockId>, std::span<const uint64_t>)> count_wrong;
  // For TransferJob::after.
  std::function<void*()> computed;

  std::shared_ptr<void> owner;  // of the pools
};

struct TierMemoryConfig {
  size_t block_bytes = 0;
  int64_t gpu_blocks = 0;
  int64_t host_blocks = 0;
};

// Both pools are plain memory.
Result<TierMemory> MakePlainTierMemory(const TierMemoryConfig& config,
                                       std::unique_ptr<CopyBackend> backend);
// One is the GPU's, the other pinned.
Result<TierMemory> MakeCudaTierMemory(const TierMemoryConfig& config, const CudaDevice& device);

}  // namespace kvcast::tools
