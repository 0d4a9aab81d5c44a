// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.h"

#include <string>

namespace kvcast {
namespace cuda {

Result<CudaDevice> Device::Open(const DriverApi& api, int ordinal) {
  int count = 0;
  KVCAST_RETURN_IF_ERROR(ToStatus(api, api.DeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count) {
    return Status(StatusCode::kUnavailable, "no GPU with number " + std::to_string(ordinal) +
                                                "; number of GPUs: " + std::to_string(count));
  }
  CUdevice handle = 0;
  KVCAST_RETURN_IF_ERROR(ToStatus(api, api.DeviceGet(&handle, ordinal), "cuDeviceGet"));
  CUcontext context = nullptr;
  KVCAST_RETURN_IF_ERROR(
      ToStatus(api, api.DevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain"));
  const std::shared_ptr<Device> device(new Device(api, handle, context));
  CudaDeviceInfo& info = device->info_;
  info.ordinal = ordinal;
  char name[256] = {};
  if (api.DeviceGetName(name, sizeof(name) - 1, handle) == CUDA_SUCCESS) info.name = name;
  (void)api.DriverGetVersion(&info.driver_version);
  (void)api.DeviceTotalMem(&info.memory_bytes, handle);
  info.compute_capability = 10 * device->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            device->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.multiprocessors = device->Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.copy_engines = device->Attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  int node = -1;
  if (api.DeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, handle) == CUDA_SUCCESS) {
    info.numa_node = node;
  }
  info.copy_call = api.MemcpyBatchAsync13000   ? "cuMemcpyBatchAsync 13.0"
                   : api.MemcpyBatchAsync12080 ? "cuMemcpyBatchAsync 12.8"
                                               : "cuMemcpyAsync";
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  return CudaDevice(device);
}

Device::~Device() { (void)api_.DevicePrimaryCtxRelease(device_); }

Status Device::MakeCurrent() const {
  return Check(api_.CtxSetCurrent(context_), "cuCtxSetCurrent");
}

int Device::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return api_.DeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

}  // namespace cuda

Result<CudaDevice> OpenCudaDevice(int ordinal) {
  const auto api = cuda::LoadDriver();
  if (!api.ok()) return api.status();
  return cuda::Device::Open(**api, ordinal);
}

CudaDeviceInfo InfoOf(const CudaDevice& device) { return device->info(); }

}  // namespace kvcast
