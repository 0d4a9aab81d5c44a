// CudaMemory and PinnedPool: the two kinds of memory that GPU copies use. CudaMemory is memory of
// the GPU, and PinnedPool is pinned host memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_device.h"
#include "kvcast/transfer/host_pool.h"

namespace kvcast {

// Owns exactly `bytes` of GPU memory. Copies and kernels use base(); the CPU must not access it.
// Move-only. Thread-compatible.
class CudaMemory {
 public:
  // Errors: kInvalidArgument if `bytes` is 0; kExhausted if the GPU has too little free memory;
  // kUnavailable if the driver fails.
  static Result<CudaMemory> Create(CudaDevice device, size_t bytes);
  ~CudaMemory();
  CudaMemory(CudaMemory&& other) noexcept;
  CudaMemory& operator=(CudaMemory&& other) noexcept;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  CudaMemory(CudaDevice device, std::byte* base, size_t bytes)
      : device_(std::move(device)), base_(base), bytes_(bytes) {}

  CudaDevice device_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

struct PinnedPoolConfig {
  size_t bytes = 0;
  HostPages pages = HostPages::kTransparentHuge;
  int threads = 0;  // see HostPoolConfig::threads
  // True: allocate on the NUMA node next to the GPU, if the machine reports it.
  bool near_device = true;
  // 0: the driver registers the pool in one part. Otherwise it registers parts of this number of
  // bytes, for Linux kernels that cannot register the whole pool at once. A driver call cannot copy
  // across the border of two parts, so the value should be a multiple of the slot size. The
  // backends of this library split copies at these borders.
  size_t registration_bytes = 0;
};

// A HostPool that the GPU reads and writes directly. There is no fallback to pageable memory: if
// the memory cannot be registered, Create returns an error. Move-only. Thread-compatible.
class PinnedPool {
 public:
  // Errors: the errors of HostPool::Create; kInvalidArgument if registration_bytes is not a
  // multiple of the page size; kExhausted if the driver cannot register the memory; kUnavailable if
  // another call of the driver fails. On error no memory stays allocated.
  static Result<PinnedPool> Create(CudaDevice device, const PinnedPoolConfig& config);
  ~PinnedPool();
  PinnedPool(PinnedPool&& other) noexcept = default;
  PinnedPool& operator=(PinnedPool&& other) noexcept;

  std::byte* base() const { return pool_.base(); }
  size_t bytes() const { return pool_.bytes(); }
  // Distance in bytes from the start of a registration to the start of the next registration.
  size_t registration_bytes() const { return registration_bytes_; }
  size_t registrations() const { return aliases_.size(); }
  bool Contains(const std::byte* address) const {
    return address >= base() && address < base() + bytes();
  }
  // The address at which kernels access the byte at `address`. It may differ from the CPU address.
  // REQUIRES: Contains(address).
  std::byte* DeviceAddress(const std::byte* address) const {
    const auto at = static_cast<size_t>(address - base());
    return aliases_[at / registration_bytes_] + at % registration_bytes_;
  }

 private:
  PinnedPool(CudaDevice device, HostPool pool, size_t registration_bytes)
      : device_(std::move(device)),
        pool_(std::move(pool)),
        registration_bytes_(registration_bytes) {}
  Status Register();
  void Unregister();

  CudaDevice device_;
  HostPool pool_;
  size_t registration_bytes_ = 0;
  std::vector<std::byte*> aliases_;  // device address of the start of each registration
};

}  // namespace kvcast
