// SPDX-License-Identifier: Apache-2.0
#include "apps/gpu/driver_memory.h"

#include <algorithm>

namespace kvcast::cuda {
namespace {

Status NotSupported() {
  return {StatusCode::kFailedPrecondition, "the driver does not support this kind of allocation"};
}

// A range of virtual addresses, and host memory that is mapped to it. Map stops at the first error.
// Free reverses the completed steps, in the opposite order.
class Mapping {
 public:
  explicit Mapping(const CudaDevice& device) : device_(device), api_(device->api()) {}

  Status Map(size_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    properties.location.id = std::max(device_->info().numa_node, 0);
    size_t granularity = 0;
    KVCAST_RETURN_IF_ERROR(
        device_->Check(api_.MemGetAllocationGranularity(&granularity, &properties,
                                                        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                       "cuMemGetAllocationGranularity"));
    bytes_ = (bytes + granularity - 1) / granularity * granularity;
    KVCAST_RETURN_IF_ERROR(
        device_->Check(api_.MemAddressReserve(&base_, bytes_, 0, 0, 0), "cuMemAddressReserve"));
    KVCAST_RETURN_IF_ERROR(
        device_->Check(api_.MemCreate(&memory_, bytes_, &properties, 0), "cuMemCreate"));
    has_memory_ = true;
    KVCAST_RETURN_IF_ERROR(device_->Check(api_.MemMap(base_, bytes_, 0, memory_, 0), "cuMemMap"));
    is_mapped_ = true;
    CUmemAccessDesc access[2]{};
    access[0].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[0].location.id = device_->number();
    access[1].location = properties.location;
    for (CUmemAccessDesc& entry : access) entry.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return device_->Check(api_.MemSetAccess(base_, bytes_, access, std::size(access)),
                          "cuMemSetAccess");
  }

  void Free() const {
    if (is_mapped_) (void)api_.MemUnmap(base_, bytes_);
    if (has_memory_) (void)api_.MemRelease(memory_);
    if (base_ != 0) (void)api_.MemAddressFree(base_, bytes_);
  }

  std::byte* base() const { return reinterpret_cast<std::byte*>(base_); }

 private:
  const CudaDevice device_;
  const DriverApi& api_;
  size_t bytes_ = 0;
  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  bool has_memory_ = false;
  bool is_mapped_ = false;
};

bool SupportsMapping(const CudaDevice& device) {
  const DriverApi& api = device->api();
  return device->Attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) !=
             0 &&
         api.MemGetAllocationGranularity != nullptr && api.MemAddressReserve != nullptr &&
         api.MemAddressFree != nullptr && api.MemCreate != nullptr && api.MemRelease != nullptr &&
         api.MemMap != nullptr && api.MemUnmap != nullptr && api.MemSetAccess != nullptr;
}

}  // namespace

Result<DriverMemory> DriverMemory::Allocate(const CudaDevice& device, size_t bytes) {
  const DriverApi& api = device->api();
  if (api.MemHostAlloc == nullptr || api.MemFreeHost == nullptr) return NotSupported();
  void* base = nullptr;
  KVCAST_RETURN_IF_ERROR(device->Check(
      api.MemHostAlloc(&base, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
      "cuMemHostAlloc"));
  return DriverMemory(device, static_cast<std::byte*>(base),
                      [&api, base] { (void)api.MemFreeHost(base); });
}

Result<DriverMemory> DriverMemory::Map(const CudaDevice& device, size_t bytes) {
  if (!SupportsMapping(device)) return NotSupported();
  Mapping mapping(device);
  if (Status status = mapping.Map(bytes); !status.ok()) {
    mapping.Free();
    return status;
  }
  return DriverMemory(device, mapping.base(), [mapping] { mapping.Free(); });
}

DriverMemory::~DriverMemory() {
  if (base_ == nullptr) return;
  (void)device_->MakeCurrent();
  release_();
}

}  // namespace kvcast::cuda
