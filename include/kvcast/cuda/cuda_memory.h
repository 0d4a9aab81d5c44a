// Memory that a GPU copies from and to: its own, and pinned host memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_device.h"
#include "kvcast/transfer/host_pool.h"

namespace kvcast {

// Owns memory of the GPU, of exactly `bytes`. base() is for copies and kernels; the CPU must not
// touch it.
class CudaMemory {
 public:
  // Not ok: kInvalidArgument (no bytes); kExhausted (the GPU has no room).
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
  int threads = 0;  // see HostPoolConfig
  // On the NUMA node next to the GPU, where the machine names one.
  bool near_device = true;
  // 0: the pool is registered with the driver as one. Else in parts of so many bytes, for kernels
  // that cannot register so much at once; no copy may reach over the border of two parts, so take a
  // multiple of a slot's size. Backends of this library cut copies there by themselves.
  size_t registration_bytes = 0;
};

// A HostPool that the GPU reads and writes by itself. There is no fallback to pageable memory: what
// cannot be registered is an error that says so.
class PinnedPool {
 public:
  // Not ok: what HostPool::Create says; kInvalidArgument naming registration_bytes, which must be
  // whole pages; kExhausted with the driver's error, in which case nothing is kept.
  static Result<PinnedPool> Create(CudaDevice device, const PinnedPoolConfig& config);
  ~PinnedPool();
  PinnedPool(PinnedPool&& other) noexcept = default;
  PinnedPool& operator=(PinnedPool&& other) noexcept;

  std::byte* base() const { return pool_.base(); }
  size_t bytes() const { return pool_.bytes(); }
  // Bytes from the start of one registration to that of the next.
  size_t registration_bytes() const { return registration_bytes_; }
  size_t registrations() const { return aliases_.size(); }
  bool Contains(const std::byte* address) const {
    return address >= base() && address < base() + bytes();
  }
  // Where kernels find what is at `address`, which may be somewhere else than for the CPU.
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
  std::vector<std::byte*> aliases_;  // of each registration's start
};

}  // namespace kvcast
