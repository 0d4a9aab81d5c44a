// Host memory that the fake driver allocates itself.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "tests/cuda/fake_driver_calls.h"

namespace kvcast::cuda::testing {
namespace {

void FillPages(DriverApi& api) {
  api.MemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) -> CUresult {
    ENTER("cuMemGetAllocationGranularity");
    *bytes = FakeDriver::kHostPage;
    return CUDA_SUCCESS;
  };
  api.MemAddressReserve = [](CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) -> CUresult {
    ENTER("cuMemAddressReserve");
    if (bytes % FakeDriver::kHostPage != 0) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::byte> memory(bytes);
    *address = reinterpret_cast<uintptr_t>(memory.data());
    FakeDriver::Get().reservations[*address] = std::move(memory);
    return CUDA_SUCCESS;
  };
  api.MemAddressFree = [](CUdeviceptr address, size_t bytes) -> CUresult {
    ENTER("cuMemAddressFree");
    FakeDriver& driver = FakeDriver::Get();
    const auto it = driver.reservations.find(address);
    if (it == driver.reservations.end() || it->second.size() != bytes ||
        driver.mappings.contains(address)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    driver.reservations.erase(it);
    return CUDA_SUCCESS;
  };
  api.MemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) -> CUresult {
    ENTER("cuMemCreate");
    FakeDriver& driver = FakeDriver::Get();
    if (bytes % FakeDriver::kHostPage != 0 || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA ||
        properties->location.id != std::max(driver.options.numa_node, 0)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = driver.host_pages.empty() ? 1 : driver.host_pages.rbegin()->first + 1;
    driver.host_pages[*handle] = bytes;
    return CUDA_SUCCESS;
  };
  api.MemRelease = [](CUmemGenericAllocationHandle handle) -> CUresult {
    ENTER("cuMemRelease");
    return FakeDriver::Get().host_pages.erase(handle) == 1 ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
  };
}

void FillMaps(DriverApi& api) {
  api.MemMap = [](CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) -> CUresult {
    ENTER("cuMemMap");
    FakeDriver& driver = FakeDriver::Get();
    const auto it = driver.reservations.find(address);
    if (it == driver.reservations.end() || bytes > it->second.size() || offset != 0 ||
        driver.host_pages[handle] != bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    driver.mappings[address] = bytes;
    return CUDA_SUCCESS;
  };
  api.MemUnmap = [](CUdeviceptr address, size_t bytes) -> CUresult {
    ENTER("cuMemUnmap");
    FakeDriver& driver = FakeDriver::Get();
    const auto it = driver.mappings.find(address);
    if (it == driver.mappings.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    driver.mappings.erase(it);
    driver.registrations.erase(address);
    return CUDA_SUCCESS;
  };
  api.MemSetAccess = [](CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) -> CUresult {
    ENTER("cuMemSetAccess");
    return FakeDriver::Get().SetAccess(address, bytes, access, count);
  };
}

}  // namespace

void FillHostMemory(DriverApi& api) {
  api.MemHostAlloc = [](void** address, size_t bytes, unsigned flags) -> CUresult {
    ENTER("cuMemHostAlloc");
    FakeDriver& driver = FakeDriver::Get();
    if ((flags & CU_MEMHOSTALLOC_DEVICEMAP) == 0) driver.Fault("allocated without DEVICEMAP");
    std::vector<std::byte> memory(bytes);
    *address = memory.data();
    const CUresult result = driver.Register(*address, bytes);
    if (result != CUDA_SUCCESS) return result;
    driver.host_memory[reinterpret_cast<uintptr_t>(*address)] = std::move(memory);
    return CUDA_SUCCESS;
  };
  api.MemFreeHost = [](void* address) -> CUresult {
    ENTER("cuMemFreeHost");
    FakeDriver& driver = FakeDriver::Get();
    const auto base = reinterpret_cast<uintptr_t>(address);
    if (driver.host_memory.erase(base) == 0) return CUDA_ERROR_INVALID_VALUE;
    driver.registrations.erase(base);
    return CUDA_SUCCESS;
  };
}

void FillMappings(DriverApi& api) {
  FillPages(api);
  FillMaps(api);
}

// The caller must allow access for both the GPU and the CPU.
CUresult FakeDriver::SetAccess(uintptr_t address, size_t bytes, const CUmemAccessDesc* access,
                               size_t count) {
  const auto it = mappings.find(address);
  if (it == mappings.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto allows = [&](CUmemLocationType type) {
    return std::any_of(access, access + count, [&](const CUmemAccessDesc& one) {
      return one.location.type == type && one.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    });
  };
  if (!allows(CU_MEM_LOCATION_TYPE_DEVICE)) Fault("the GPU cannot reach mapped memory");
  if (!allows(CU_MEM_LOCATION_TYPE_HOST_NUMA)) Fault("the CPU cannot reach mapped memory");
  return Register(reinterpret_cast<void*>(address), bytes);
}

}  // namespace kvcast::cuda::testing
