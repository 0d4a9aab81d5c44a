// Replaces the CUDA backend in a build without a CUDA toolkit.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cuda/internal_pool.h"
#include "kvcast/cuda/cuda_copy_backend.h"
#include "kvcast/cuda/cuda_device.h"
#include "kvcast/cuda/cuda_memory.h"

namespace kvcast {
namespace {

Status NoCuda() { return {StatusCode::kUnavailable, "this build has no CUDA"}; }

}  // namespace

// Without a device, the objects below are always empty.
Result<CudaDevice> OpenCudaDevice(int) { return NoCuda(); }
CudaDeviceInfo InfoOf(const CudaDevice&) { return {}; }

Result<CudaMemory> CudaMemory::Create(CudaDevice, size_t) { return NoCuda(); }
CudaMemory::~CudaMemory() = default;
CudaMemory::CudaMemory(CudaMemory&&) noexcept = default;
CudaMemory& CudaMemory::operator=(CudaMemory&&) noexcept = default;

Result<PinnedPool> PinnedPool::Create(CudaDevice, const PinnedPoolConfig&) { return NoCuda(); }
Result<PinnedPool> cuda::MakeInternalPool(const CudaDevice&, PinnedPoolConfig) { return NoCuda(); }
PinnedPool::~PinnedPool() = default;
PinnedPool& PinnedPool::operator=(PinnedPool&&) noexcept = default;

class CudaCopyBackend::Impl {};
CudaCopyBackend::CudaCopyBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaCopyBackend::~CudaCopyBackend() = default;
Result<std::unique_ptr<CudaCopyBackend>> CudaCopyBackend::Create(CudaDevice,
                                                                 const CudaCopyConfig&) {
  return NoCuda();
}
Result<CopyTicket> CudaCopyBackend::Submit(CopyDirection, std::span<const CopyOp>, void*) {
  return NoCuda();
}
CopyState CudaCopyBackend::Poll(CopyTicket) { return CopyState::kFailed; }
CopyState CudaCopyBackend::Wait(CopyTicket) { return CopyState::kFailed; }
Status CudaCopyBackend::HoldBack(void*, CopyTicket) { return NoCuda(); }
CudaCopyStats CudaCopyBackend::stats() const { return {}; }

}  // namespace kvcast
