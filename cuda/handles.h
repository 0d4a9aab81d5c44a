// Streams, events, modules and device memory that are given back by themselves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "cuda/device.h"

namespace kvcast::cuda {

// Owns one handle of the driver. `kDestroy` is the member of DriverApi that gives it back.
template <typename Handle, auto kDestroy>
class Unique {
 public:
  Unique() = default;
  Unique(CudaDevice device, Handle handle) : device_(std::move(device)), handle_(handle) {}
  ~Unique() {
    if (device_ == nullptr) return;
    // There is nobody to tell.
    (void)device_->MakeCurrent();
    (void)(device_->api().*kDestroy)(handle_);
  }
  Unique(Unique&& other) noexcept
      : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, Handle{})) {}
  Unique& operator=(Unique&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  Handle get() const { return handle_; }

 private:
  CudaDevice device_;
  Handle handle_{};
};

using Stream = Unique<CUstream, &DriverApi::StreamDestroy>;
using Event = Unique<CUevent, &DriverApi::EventDestroy>;
using Module = Unique<CUmodule, &DriverApi::ModuleUnload>;

// Copies ignore priorities; kernels of this stream yield to those of any other.
Result<Stream> MakeStream(const CudaDevice& device);
// For ordering and for the end of work. With times it costs more to record.
enum class EventTimes { kOff, kOn };
Result<Event> MakeEvent(const CudaDevice& device, EventTimes times = EventTimes::kOff);

}  // namespace kvcast::cuda
