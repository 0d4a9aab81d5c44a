// Kernels of benchmarks, tests and the simulated engine; no part of the copy backend.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/handles.h"

namespace kvcast::cuda {

// tool_kernels.cu
extern const unsigned char kToolKernels[];

struct ToolKernels {
  Module module;
  // How others copy fragments, by the same arguments as kWarpKernel (copy_kernels.h):
  CUfunction block_per_fragment = nullptr;  // a thread block each, 16 bytes a thread
  CUfunction warp_per_fragment = nullptr;   // a warp each, 8 bytes a thread
  // (float* c, const float* a, const float* b, uint32_t n): c = a * b, n x n, n a multiple of 32;
  // thread blocks of 256, (n / 32) squared of them.
  CUfunction gemm = nullptr;
  // (uint64_t* memory, uint64_t words): reads and writes all of it.
  CUfunction touch = nullptr;
  // (uint64_t nanoseconds): does nothing for so long.
  CUfunction stall = nullptr;
  // (const uint64_t* places, const uint64_t* words, uint64_t bytes): block i of the grid fills
  // `bytes` bytes at places[i] so that the 8 at offset `at` are words[i] + at.
  CUfunction fill = nullptr;
  // (const uint64_t* places, const uint64_t* words, uint64_t bytes, uint32_t* wrong): sets wrong[i]
  // to 1 if the bytes are not what `fill` writes.
  CUfunction check = nullptr;

  static Result<ToolKernels> Load(const CudaDevice& device);
};

// Puts a kernel behind what `stream` has to do; arguments by value, as the kernel takes them.
template <typename... Arguments>
Status LaunchTool(const CudaDevice& device, CUfunction kernel, unsigned blocks, unsigned threads,
                  CUstream stream, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  return device->Check(
      device->api().LaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr),
      "cuLaunchKernel");
}

}  // namespace kvcast::cuda
