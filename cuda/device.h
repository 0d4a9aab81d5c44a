// Device: the primary context of a GPU, and the known facts about the GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cuda/driver_api.h"
#include "kvcast/cuda/cuda_device.h"

namespace kvcast::cuda {

class Device {
 public:
  // `api` must outlive the device.
  static Result<CudaDevice> Open(const DriverApi& api, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DriverApi& api() const { return api_; }
  const CudaDeviceInfo& info() const { return info_; }
  CUdevice number() const { return device_; }
  CUcontext context() const { return context_; }
  // Every thread must call this before any other call that works on the GPU. The call is cheap.
  Status MakeCurrent() const;
  // Returns 0 if this driver does not support the attribute.
  int Attribute(CUdevice_attribute attribute) const;

  Status Check(CUresult result, const char* call) const { return ToStatus(api_, result, call); }

 private:
  Device(const DriverApi& api, CUdevice device, CUcontext context)
      : api_(api), device_(device), context_(context) {}

  const DriverApi& api_;
  const CUdevice device_;
  const CUcontext context_;
  CudaDeviceInfo info_;
};

}  // namespace kvcast::cuda
