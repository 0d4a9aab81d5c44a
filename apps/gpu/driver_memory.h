// DriverMemory: host memory that the driver makes by itself, to be measured beside PinnedPool's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "cuda/device.h"

namespace kvcast::cuda {

class DriverMemory {
 public:
  // cuMemHostAlloc's.
  static Result<DriverMemory> Allocate(const CudaDevice& device, size_t bytes);
  // Of the driver's virtual memory management, on the NUMA node next to the GPU: reserved, made and
  // mapped apart from each other.
  static Result<DriverMemory> Map(const CudaDevice& device, size_t bytes);
  // Both, not ok: kFailedPrecondition, "not offered here"; else the driver's error, in which case
  // nothing is kept.

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
