// DriverMemory: host memory that the driver allocates, for a comparison with the memory of
// PinnedPool.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "cuda/device.h"

namespace kvcast::cuda {

// Errors of Allocate and Map: kFailedPrecondition if the GPU or its driver does not support this
// kind of allocation; otherwise the driver's error. After an error, nothing is allocated.
class DriverMemory {
 public:
  // Allocates with cuMemHostAlloc.
  static Result<DriverMemory> Allocate(const CudaDevice& device, size_t bytes);
  // Allocates with the driver's virtual memory management, on the NUMA node next to the GPU (node 0
  // if this node is not known).
  static Result<DriverMemory> Map(const CudaDevice& device, size_t bytes);

  ~DriverMemory();
  DriverMemory(DriverMemory&& other) noexcept
      : device_(std::move(other.device_)),
        base_(std::exchange(other.base_, nullptr)),
        release_(std::move(other.release_)) {}
  DriverMemory& operator=(DriverMemory&&) = delete;

  std::byte* base() const { return base_; }

 private:
  DriverMemory(CudaDevice device, std::byte* base, std::function<void()> release)
      : device_(std::move(device)), base_(base), release_(std::move(release)) {}

  CudaDevice device_;
  std::byte* base_ = nullptr;
  std::function<void()> release_;
};

}  // namespace kvcast::cuda
