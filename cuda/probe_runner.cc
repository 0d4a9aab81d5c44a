// SPDX-License-Identifier: Apache-2.0
#include "cuda/probe_runner.h"

#include <algorithm>

#include "cuda/internal_pool.h"

namespace kvcast::cuda {
namespace {

constexpr int kTries = 3;
// Odd, so that its multiples visit all places modulo a power of 2.
constexpr size_t kStride = 1543;

}  // namespace

Result<std::unique_ptr<ProbeRunner>> ProbeRunner::Create(const CudaDevice& device,
                                                         const CopyKernels& kernels) {
  auto gpu = CudaMemory::Create(device, kMaxProbeBytes);
  if (!gpu.ok()) return gpu.status();
  auto host = MakeInternalPool(device, {.bytes = kMaxProbeBytes});
  if (!host.ok()) return host.status();
  auto stream = MakeStream(device);
  if (!stream.ok()) return stream.status();
  auto begin = MakeEvent(device, EventTimes::kOn);
  auto end = MakeEvent(device, EventTimes::kOn);
  if (!begin.ok()) return begin.status();
  if (!end.ok()) return end.status();
  auto kernel = KernelCopier::Create(device, kernels);
  if (!kernel.ok()) return kernel.status();
  return std::unique_ptr<ProbeRunner>(new ProbeRunner(
      device, std::move(gpu).value(), std::move(host).value(), std::move(stream).value(),
      std::move(begin).value(), std::move(end).value(), std::move(kernel).value()));
}

// In host memory, copy i follows copy i - 1. On the GPU, copy i is far from copy i - 1.
void ProbeRunner::Plan(CopyDirection direction, const Probe& probe) {
  ops_.clear();
  aligned_.Clear();
  unaligned_.Clear();
  const size_t copy_bytes = probe.rows * probe.row_bytes;
  const bool device_only = probe.kind == ProbeKind::kDeviceKernel;
  std::byte* const from = device_only                         ? gpu_.base()
                          : direction == CopyDirection::kLoad ? host_.base()
                                                              : gpu_.base();
  std::byte* const to = device_only                         ? gpu_.base() + kMaxProbeBytes / 2
                        : direction == CopyDirection::kLoad ? gpu_.base()
                                                            : host_.base();
  for (size_t i = 0; i < probe.copies; ++i) {
    const size_t place = i * kStride % probe.copies;
    // In host memory, the rows of one copy lie side by side. On the GPU, the first rows of all
    // copies lie side by side. The second rows of all copies follow, and so on.
    const size_t packed = i * copy_bytes;
    const size_t spread = place * probe.row_bytes;
    const size_t spread_pitch = probe.copies * probe.row_bytes;
    const bool load = direction == CopyDirection::kLoad;
    CopyOp op{from + (load ? packed : spread),
              to + (load ? spread : packed),
              probe.row_bytes,
              load ? probe.row_bytes : spread_pitch,
              load ? spread_pitch : probe.row_bytes,
              probe.rows};
    ops_.push_back(op);
    const auto alias = [&](const std::byte* p) {
      return reinterpret_cast<uint64_t>(host_.Contains(p) ? host_.DeviceAddress(p) : p);
    };
    CutIntoPieces(op, alias(op.src), alias(op.dst), aligned_, unaligned_);
  }
}

Status ProbeRunner::Start(CopyDirection direction, const Probe& probe) {
  if (probe.kind == ProbeKind::kKernel || probe.kind == ProbeKind::kDeviceKernel) {
    KernelCounts counts;
    return kernel_.Enqueue(aligned_, unaligned_, probe.blocks, stream_.get(), counts);
  }
  CopyEngineCounts counts;
  const CopyEngineOptions options{.call = CopyEngine::NewestCall(device_->api()),
                                  .rows_as_one = probe.kind == ProbeKind::kEngineRows};
  return engine_.Enqueue(direction, ops_, options, descriptors_, stream_.get(), counts);
}

// Uses the GPU's own clock. The GPU is idle from the first event until the calls have submitted
// work, so the result includes the time of the calls.
Result<double> ProbeRunner::TimeOnce(CopyDirection direction, const Probe& probe) {
  const DriverApi& api = device_->api();
  KVCAST_RETURN_IF_ERROR(
      device_->Check(api.EventRecord(begin_.get(), stream_.get()), "cuEventRecord"));
  KVCAST_RETURN_IF_ERROR(Start(direction, probe));
  KVCAST_RETURN_IF_ERROR(
      device_->Check(api.EventRecord(end_.get(), stream_.get()), "cuEventRecord"));
  KVCAST_RETURN_IF_ERROR(
      device_->Check(api.StreamSynchronize(stream_.get()), "cuStreamSynchronize"));
  kernel_.Release(kernel_.position());
  float milliseconds = 0;
  KVCAST_RETURN_IF_ERROR(device_->Check(
      api.EventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cuEventElapsedTime"));
  return milliseconds / 1e3;
}

Result<double> ProbeRunner::Measure(CopyDirection direction, const Probe& probe) {
  if (probe.bytes() > kMaxProbeBytes) return Status(StatusCode::kInternal, "a probe is too large");
  KVCAST_RETURN_IF_ERROR(device_->MakeCurrent());
  Plan(direction, probe);
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto seconds = TimeOnce(direction, probe);
    if (!seconds.ok()) return seconds;
    if (i == 0 || *seconds < best) best = *seconds;
  }
  return best;
}

}  // namespace kvcast::cuda
