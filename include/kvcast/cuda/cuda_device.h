// A GPU, found when the program runs: neither this header nor linking needs CUDA.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kvcast/core/status.h"

namespace kvcast {

namespace cuda {
class Device;
}

// Held by everything that lives on the GPU; the last one to go gives back its context.
using CudaDevice = std::shared_ptr<const cuda::Device>;

struct CudaDeviceInfo {
  std::string name;
  int ordinal = 0;
  int driver_version = 0;      // 13000: CUDA 13.0
  int compute_capability = 0;  // 90: sm_90
  int multiprocessors = 0;
  int copy_engines = 0;
  int numa_node = -1;  // of the host memory that is nearest; -1: the machine does not say
  size_t memory_bytes = 0;
  // "cuMemcpyBatchAsync 13.0", "cuMemcpyBatchAsync 12.8" or "cuMemcpyAsync"
  std::string copy_call;
};

// Not ok, kUnavailable, says why: this build has no CUDA, no driver, no GPU of that number.
Result<CudaDevice> OpenCudaDevice(int ordinal = 0);
CudaDeviceInfo InfoOf(const CudaDevice& device);

}  // namespace kvcast
