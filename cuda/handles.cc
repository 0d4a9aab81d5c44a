// SPDX-License-Identifier: Apache-2.0
#include "cuda/handles.h"

namespace kvcast::cuda {
namespace {

constexpr int kLowestPriority = 0;

}  // namespace

Result<Stream> MakeStream(const CudaDevice& device) {
  CUstream stream = nullptr;
  KVCAST_RETURN_IF_ERROR(device->Check(
      device->api().StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, kLowestPriority),
      "cuStreamCreateWithPriority"));
  return Stream(device, stream);
}

Result<Event> MakeEvent(const CudaDevice& device, EventTimes times) {
  CUevent event = nullptr;
  const unsigned flags = times == EventTimes::kOff ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT;
  KVCAST_RETURN_IF_ERROR(device->Check(device->api().EventCreate(&event, flags), "cuEventCreate"));
  return Event(device, event);
}

}  // namespace kvcast::cuda
