// DriverMemory: host memory allocated by the driver, for comparison with PinnedPool's memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "cuda/device.h"

namespace kvcast::cuda {

class DriverMemory {
 public:
  // Allocates with cuMemHostAlloc.
  static Result<DriverMemory> Allocate(const CudaDevice& device, size_t bytes);
  // Allocates with the driver's virtual memory management, on the NUMA node next to the GPU (node 0
  // if this node is not known).
  static Result<DriverMemory> Map(const CudaDevice& device, size_t bytes);
  // Errors of Allocate and Map: kFailedPrecondition if the driver or the machine does not support
  // this kind of allocation; otherwise the driver's error. On error, nothing is allocated.

  ~DriverMemory();
  DriverMemory(DriverMemory&& other) noexcept
      : device_(std::move(other.device_)),
        base_(std::exchange(other.base_, nullptr)),
        give_back_(std::move(other.give_back_)) {}
  DriverMemory& operator=(DriverMemory&&) = delete;

  std::byte* base() const { return base_; }

 private:
  DriverMemory(CudaDevice device, std::byte* base, std::function<void()> give_back)
      : device_(std::move(device)), base_(base), give_back_(std::move(give_back)) {}

  CudaDevice device_;
  std::byte* base_ = nullptr;
  std::function<void()> give_back_;
};

}  // namespace kvcast::cuda
