// SPDX-License-Identifier: Apache-2.0
#include "kvcast/cuda/cuda_memory.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/device.h"
#include "cuda/internal_pool.h"

namespace kvcast {

Result<CudaMemory> CudaMemory::Create(CudaDevice device, size_t bytes) {
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, "bytes: must be positive");
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  CUdeviceptr base = 0;
  Status status = device->Check(device->api().MemAlloc(&base, bytes), "cuMemAlloc");
  if (!status.ok()) {
    return Status(status.code(), "cannot allocate " + std::to_string(bytes) +
                                     " bytes of GPU memory: " + status.message());
  }
  return CudaMemory(std::move(device), reinterpret_cast<std::byte*>(base), bytes);
}

CudaMemory::~CudaMemory() {
  if (base_ == nullptr) return;
  (void)device_->MakeCurrent();
  (void)device_->api().MemFree(reinterpret_cast<CUdeviceptr>(base_));
}

CudaMemory::CudaMemory(CudaMemory&& other) noexcept
    : device_(std::move(other.device_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_) {}

CudaMemory& CudaMemory::operator=(CudaMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<PinnedPool> PinnedPool::Create(CudaDevice device, const PinnedPoolConfig& config) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (config.registration_bytes % page != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "registration_bytes: must be a multiple of the page size");
  }
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  HostPoolConfig host{.bytes = config.bytes, .pages = config.pages, .threads = config.threads};
  if (config.near_device && device->info().numa_node >= 0)
    host.numa_node = device->info().numa_node;
  auto pool = HostPool::Create(host);
  if (!pool.ok()) return pool.status();
  const size_t part = config.registration_bytes == 0
                          ? config.bytes
                          : std::min(config.registration_bytes, config.bytes);
  PinnedPool pinned(std::move(device), std::move(pool).value(), part);
  KVCAST_RETURN_IF_ERROR(pinned.Register());
  return pinned;
}

Status PinnedPool::Register() {
  const cuda::DriverApi& api = device_->api();
  for (size_t offset = 0; offset < bytes(); offset += registration_bytes_) {
    const size_t part = std::min(registration_bytes_, bytes() - offset);
    Status status = device_->Check(
        api.MemHostRegister(base() + offset, part,
                            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister");
    if (!status.ok()) {
      return {StatusCode::kExhausted, "pinning " + std::to_string(part) + " of " +
                                          std::to_string(bytes()) + " bytes: " + status.message()};
    }
    CUdeviceptr alias = 0;
    status = device_->Check(api.MemHostGetDevicePointer(&alias, base() + offset, 0),
                            "cuMemHostGetDevicePointer");
    if (!status.ok()) {
      (void)api.MemHostUnregister(base() + offset);
      return status;
    }
    aliases_.push_back(reinterpret_cast<std::byte*>(alias));
  }
  return {};
}

void PinnedPool::Unregister() {
  if (aliases_.empty()) return;
  (void)device_->MakeCurrent();
  for (size_t i = 0; i < aliases_.size(); ++i) {
    (void)device_->api().MemHostUnregister(base() + i * registration_bytes_);
  }
  aliases_.clear();
}

PinnedPool::~PinnedPool() { Unregister(); }

PinnedPool& PinnedPool::operator=(PinnedPool&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(pool_, other.pool_);
  std::swap(registration_bytes_, other.registration_bytes_);
  std::swap(aliases_, other.aliases_);
  return *this;
}

// No option changes the node of these pools. So a refused node, for example in a container, must
// not stop the program.
Result<PinnedPool> cuda::MakeInternalPool(const CudaDevice& device, PinnedPoolConfig config) {
  auto pool = PinnedPool::Create(device, config);
  if (pool.ok() || device->info().numa_node < 0) return pool;
  config.near_device = false;
  return PinnedPool::Create(device, config);
}

}  // namespace kvcast
