// Streams, events and modules that are released automatically.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "cuda/device.h"

namespace kvcast::cuda {

// Owns one handle of the driver. `kDestroy` is the member of DriverApi that releases it.
template <typename Handle, auto kDestroy>
class Unique {
 public:
  Unique() = default;
  Unique(CudaDevice device, Handle handle) : device_(std::move(device)), handle_(handle) {}
  ~Unique() {
    if (device_ == nullptr) return;
    // A destructor cannot report errors.
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

// Creates a stream with the lowest priority, which is also CUDA's default priority. Waiting kernels
// of streams with a higher priority run before the kernels of this stream. Copies ignore
// priorities.
Result<Stream> MakeStream(const CudaDevice& device);
// Creates an event that marks a place in a stream. Recording an event with times costs more.
enum class EventTimes { kOff, kOn };
Result<Event> MakeEvent(const CudaDevice& device, EventTimes times = EventTimes::kOff);

}  // namespace kvcast::cuda
