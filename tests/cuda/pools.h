// A GPU with a pool, and pinned host memory, on a fake driver.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kvcast/cuda/cuda_memory.h"
#include "tests/cuda/fake_driver.h"
#include "tests/support/pools.h"

namespace kvcast::cuda::testing {

// Every byte of both pools encodes its position. Tests may read and write GPU memory, because it is
// fake.
class FakeGpu {
 public:
  explicit FakeGpu(size_t gpu_bytes, size_t host_bytes, const FakeOptions& options = {},
                   size_t registration_bytes = 0)
      : driver(options), device(driver.Open()) {
    gpu = std::make_unique<CudaMemory>(CudaMemory::Create(device, gpu_bytes).value());
    host = std::make_unique<PinnedPool>(
        PinnedPool::Create(device, {.bytes = host_bytes,
                                    .pages = HostPages::kSmall,
                                    .threads = 1,
                                    .registration_bytes = registration_bytes})
            .value());
    Fill(gpu->base(), gpu_bytes, 1);
    Fill(host->base(), host_bytes, 2);
  }

  static void Fill(std::byte* memory, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; ++i) memory[i] = kvcast::testing::ByteOf(seed, i);
  }
  std::vector<std::byte> GpuBytes() const { return {gpu->base(), gpu->base() + gpu->bytes()}; }
  std::vector<std::byte> HostBytes() const { return {host->base(), host->base() + host->bytes()}; }

  FakeDriver driver;  // must be first: the other members need it
  CudaDevice device;
  std::unique_ptr<CudaMemory> gpu;
  std::unique_ptr<PinnedPool> host;
};

// Copies bytes by the definition of CopyOp.
inline void RunOp(const CopyOp& op) {
  for (uint32_t row = 0; row < op.rows; ++row) {
    std::memcpy(op.dst + row * op.dst_pitch, op.src + row * op.src_pitch, op.row_bytes);
  }
}

}  // namespace kvcast::cuda::testing
