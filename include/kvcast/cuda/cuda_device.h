// CudaDevice: a GPU that the program finds at run time. This header and the link step do not need
// CUDA.
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

// A shared reference to a GPU. Every object that uses the GPU holds a reference. The last reference
// releases the primary context of the GPU. Calls that use the GPU make this context current on the
// calling thread, and leave it current. Thread-safe.
using CudaDevice = std::shared_ptr<const cuda::Device>;

// Properties of a GPU.
struct CudaDeviceInfo {
  std::string name;
  int ordinal = 0;
  int driver_version = 0;      // for example 13000 for CUDA 13.0
  int compute_capability = 0;  // for example 90 for sm_90
  int multiprocessors = 0;
  int copy_engines = 0;
  // NUMA node of the nearest host memory. -1: the machine does not report it.
  int numa_node = -1;
  size_t memory_bytes = 0;
  // The batched copy function in use: "cuMemcpyBatchAsync 13.0", "cuMemcpyBatchAsync 12.8" or
  // "cuMemcpyAsync".
  std::string copy_call;
};

// Opens the GPU with this number. Error: kUnavailable; the message states the cause: a build
// without CUDA, no driver, or no GPU with this number.
Result<CudaDevice> OpenCudaDevice(int ordinal = 0);
CudaDeviceInfo InfoOf(const CudaDevice& device);

}  // namespace kvcast
