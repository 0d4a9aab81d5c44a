// DriverApi: the functions of the CUDA driver that this code calls, as a table that is filled when
// the program runs. So one program serves machines with and without a GPU, and drivers of several
// versions; and a test can put a driver of its own in the table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>

#include "kvcast/core/status.h"

namespace kvcast::cuda {

// member, function: every driver has these.
#define KVCAST_DRIVER_FUNCTIONS(X)                        \
  X(Init, cuInit)                                         \
  X(DriverGetVersion, cuDriverGetVersion)                 \
  X(GetErrorName, cuGetErrorName)                         \
  X(DeviceGetCount, cuDeviceGetCount)                     \
  X(DeviceGet, cuDeviceGet)                               \
  X(DeviceGetName, cuDeviceGetName)                       \
  X(DeviceGetAttribute, cuDeviceGetAttribute)             \
  X(DeviceTotalMem, cuDeviceTotalMem)                     \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)     \
  X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease)   \
  X(CtxSetCurrent, cuCtxSetCurrent)                       \
  X(MemAlloc, cuMemAlloc)                                 \
  X(MemFree, cuMemFree)                                   \
  X(MemHostRegister, cuMemHostRegister)                   \
  X(MemHostUnregister, cuMemHostUnregister)               \
  X(MemHostGetDevicePointer, cuMemHostGetDevicePointer)   \
  X(StreamCreateWithPriority, cuStreamCreateWithPriority) \
  X(StreamDestroy, cuStreamDestroy)                       \
  X(StreamSynchronize, cuStreamSynchronize)               \
  X(StreamWaitEvent, cuStreamWaitEvent)                   \
  X(EventCreate, cuEventCreate)                           \
  X(EventDestroy, cuEventDestroy)                         \
  X(EventRecord, cuEventRecord)                           \
  X(EventQuery, cuEventQuery)                             \
  X(EventSynchronize, cuEventSynchronize)                 \
  X(EventElapsedTime, cuEventElapsedTime)                 \
  X(MemcpyAsync, cuMemcpyAsync)                           \
  X(MemsetD8Async, cuMemsetD8Async)                       \
  X(ModuleLoadData, cuModuleLoadData)                     \
  X(ModuleUnload, cuModuleUnload)                         \
  X(ModuleGetFunction, cuModuleGetFunction)               \
  X(FuncSetAttribute, cuFuncSetAttribute)                 \
  X(LaunchKernel, cuLaunchKernel)

// member, function: nullptr in the table if this driver does not have it. Only measured.
#define KVCAST_OPTIONAL_DRIVER_FUNCTIONS(X)                       \
  X(MemHostAlloc, cuMemHostAlloc)                                 \
  X(MemFreeHost, cuMemFreeHost)                                   \
  X(MemGetAllocationGranularity, cuMemGetAllocationGranularity)   \
  X(MemAddressReserve, cuMemAddressReserve)                       \
  X(MemAddressFree, cuMemAddressFree)                             \
  X(MemCreate, cuMemCreate)                                       \
  X(MemRelease, cuMemRelease)                                     \
  X(MemMap, cuMemMap)                                             \
  X(MemUnmap, cuMemUnmap)                                         \
  X(MemSetAccess, cuMemSetAccess)                                 \
  X(GraphCreate, cuGraphCreate)                                   \
  X(GraphDestroy, cuGraphDestroy)                                 \
  X(GraphAddMemcpyNode, cuGraphAddMemcpyNode)                     \
  X(GraphInstantiateWithFlags, cuGraphInstantiateWithFlags)       \
  X(GraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams) \
  X(GraphExecDestroy, cuGraphExecDestroy)                         \
  X(GraphLaunch, cuGraphLaunch)

// Batched copies: drivers from 13.0 on, and from 12.8 on, where `failed` is the copy at fault.
using MemcpyBatch13000 = CUresult(CUDAAPI*)(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                            size_t count, CUmemcpyAttributes* attributes,
                                            size_t* attribute_starts, size_t num_attributes,
                                            CUstream stream);
using MemcpyBatch12080 = CUresult(CUDAAPI*)(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                            size_t count, CUmemcpyAttributes* attributes,
                                            size_t* attribute_starts, size_t num_attributes,
                                            size_t* failed, CUstream stream);
using Memcpy3DBatch13000 = CUresult(CUDAAPI*)(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
                                              unsigned long long flags, CUstream stream);
using Memcpy3DBatch12080 = CUresult(CUDAAPI*)(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
                                              size_t* failed, unsigned long long flags,
                                              CUstream stream);

struct DriverApi {
#define KVCAST_MEMBER(member, function) decltype(&::function) member = nullptr;
  KVCAST_DRIVER_FUNCTIONS(KVCAST_MEMBER)
  KVCAST_OPTIONAL_DRIVER_FUNCTIONS(KVCAST_MEMBER)
#undef KVCAST_MEMBER
  // nullptr: this driver does not have it.
  MemcpyBatch13000 MemcpyBatchAsync13000 = nullptr;
  MemcpyBatch12080 MemcpyBatchAsync12080 = nullptr;
  Memcpy3DBatch13000 Memcpy3DBatchAsync13000 = nullptr;
  Memcpy3DBatch12080 Memcpy3DBatchAsync12080 = nullptr;
};

// Finds a function by name, in the form that it has in `version` of CUDA; nullptr: there is none.
using DriverLookup = void* (*)(const char* name, int version);
// Not ok, kUnavailable: names the function that is missing.
Status FillDriverApi(DriverLookup lookup, DriverApi& api);

// The table of this machine's driver, initialised. Not ok, kUnavailable, says what is missing.
Result<const DriverApi*> LoadDriver();

// "call: CUDA_ERROR_...". Ok if `result` is; kExhausted if memory is short, else kUnavailable.
Status ToStatus(const DriverApi& api, CUresult result, const char* call);

}  // namespace kvcast::cuda

// Returns from a function with the Status of a driver's call that fails.
#define KVCAST_RETURN_IF_ERROR(status_expression)                                      \
  do {                                                                                 \
    if (::kvcast::Status status_ = (status_expression); !status_.ok()) return status_; \
  } while (false)
