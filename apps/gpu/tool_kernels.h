// Kernels of benchmarks, tests and the simulated engine; not part of the copy backend.
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
  // Copy kernels of other projects, with the arguments of kWarpKernel (copy_kernels.h):
  CUfunction block_per_fragment = nullptr;  // one thread block per fragment, 16 bytes per thread
  CUfunction warp_per_fragment = nullptr;   // one warp per fragment, 8 bytes per thread
  // (float* c, const float* a, const float* b, uint32_t n): c = a * b. The matrices are n x n. n
  // must be a multiple of 32. Launch (n / 32) squared thread blocks of 256 threads.
  CUfunction gemm = nullptr;
  // (uint64_t* memory, uint64_t words): reads and writes all words.
  CUfunction touch = nullptr;
  // (uint64_t nanoseconds): waits for this time.
  CUfunction stall = nullptr;
  // (const uint64_t* places, const uint64_t* words, uint64_t bytes): block i of the grid fills
  // `bytes` bytes at places[i]; the 8 bytes at each `offset` become words[i] + offset.
  CUfunction fill = nullptr;
  // (const uint64_t* places, const uint64_t* words, uint64_t bytes, uint32_t* wrong): sets wrong[i]
  // to 1 if the bytes differ from the pattern of `fill`.
  CUfunction check = nullptr;

  static Result<ToolKernels> Load(const CudaDevice& device);
};

// Adds a kernel launch to `stream`. Each argument must have the type of the kernel's parameter.
template <typename... Arguments>
Status LaunchTool(const CudaDevice& device, CUfunction kernel, unsigned blocks, unsigned threads,
                  CUstream stream, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  return device->Check(
      device->api().LaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr),
      "cuLaunchKernel");
}

}  // namespace kvcast::cuda
