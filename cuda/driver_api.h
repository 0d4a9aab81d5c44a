// DriverApi: a table of the CUDA driver functions that this code calls. The table is filled at run
// time. One program therefore works on machines with and without a GPU, and with drivers of several
// versions. A test can put its own driver into the table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>

#include "kvcast/core/status.h"

namespace kvcast::cuda {

// Pairs (member, function). FillDriverApi refuses a driver that lacks one of these functions.
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

// Pairs (member, function). A member is nullptr if this driver does not have the function. These
// functions are only used for measurements.
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

// Batched copies. The forms 13000 exist in drivers from 13.0 on, the forms 12080 in drivers from
// 12.8 on. `failed` is the index of the copy that failed.
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
  // nullptr: this driver does not have the function.
  MemcpyBatch13000 MemcpyBatchAsync13000 = nullptr;
  MemcpyBatch12080 MemcpyBatchAsync12080 = nullptr;
  Memcpy3DBatch13000 Memcpy3DBatchAsync13000 = nullptr;
  Memcpy3DBatch12080 Memcpy3DBatchAsync12080 = nullptr;
};

// Finds a function by name, in the form that it has in CUDA `version`. nullptr: there is no such
// function.
using DriverLookup = void* (*)(const char* name, int version);
// Not ok, kUnavailable: the message names the missing function.
Status FillDriverApi(DriverLookup lookup, DriverApi& api);

// The initialised table of this machine's driver. Not ok, kUnavailable: the message names the
// missing part.
Result<const DriverApi*> LoadDriver();

// The message is "call: CUDA_ERROR_...". Ok if `result` is ok; kExhausted if memory is short;
// otherwise kUnavailable.
Status ToStatus(const DriverApi& api, CUresult result, const char* call);

}  // namespace kvcast::cuda

// Returns from the calling function if a driver call fails, with the Status of that call.
#define KVCAST_RETURN_IF_ERROR(status_expression)                                      \
  do {                                                                                 \
    if (::kvcast::Status status_ = (status_expression); !status_.ok()) return status_; \
  } while (false)
