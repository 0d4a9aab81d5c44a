// SPDX-License-Identifier: Apache-2.0
#include "kvcast/cuda/cuda_copy_backend.h"

#include <algorithm>
#include <utility>

#include "cuda/copy_lane.h"
#include "cuda/probe_runner.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace kvcast {
namespace {

using cuda::CopyKernels;
using cuda::CopyLane;
using cuda::LaneBatch;

constexpr std::array kDirections = {CopyDirection::kLoad, CopyDirection::kStore};
constexpr int kDefaultKernelBlocks = 4;
constexpr int kMaxKernelBlocks = 1024;

Status Invalid(const char* message) { return {StatusCode::kInvalidArgument, message}; }

Status Validate(const CudaCopyConfig& config) {
  if (config.host == nullptr) return Invalid("host: is null");
  if (config.kernel_blocks < 0 || config.kernel_blocks > kMaxKernelBlocks) {
    return Invalid("kernel_blocks: must be in 0..1024");
  }
  if (!(config.kernel_margin >= 0)) return Invalid("kernel_margin: must not be negative");
  const bool staged =
      config.load_path == CudaCopyPath::kStaged || config.store_path == CudaCopyPath::kStaged;
  if (staged && config.staging_bytes == 0) return Invalid("staging_bytes: is 0");
  return {};
}

}  // namespace

class CudaCopyBackend::Impl {
 public:
  Impl(CudaDevice device, CopyKernels kernels)
      : device_(std::move(device)), kernels_(std::move(kernels)) {}
  ~Impl() {
    (void)device_->MakeCurrent();
    for (const auto& lane : lanes_) {
      if (lane != nullptr) (void)lane->Drain();
    }
  }

  Status AddLanes(const CudaCopyConfig& config) {
    std::unique_ptr<cuda::ProbeRunner> runner;
    if (config.calibrate) {
      auto created = cuda::ProbeRunner::Create(device_, kernels_);
      if (created.ok()) {
        runner = std::move(created).value();
      } else {
        calibration_errors_.fill(created.status().message());
      }
    }
    for (const CopyDirection direction : kDirections) {
      KVCAST_RETURN_IF_ERROR(AddLane(config, direction, runner.get()));
    }
    return {};
  }

  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops, void* after) {
    const MutexLock lock(mutex_);
    if (!poison_.empty()) return Poisoned();
    KVCAST_RETURN_IF_ERROR(device_->MakeCurrent());
    Batches& batches = under_way_[static_cast<size_t>(direction)];
    auto batch = NewBatch();
    if (!batch.ok()) return batch.status();
    Status status = lanes_[static_cast<size_t>(direction)]->Start(ops, static_cast<CUevent>(after),
                                                                  **batch, poison_);
    if (!status.ok()) {
      unused_.push_back(std::move(batch).value());
      return status;
    }
    (*batch)->ticket = CopyTicket(next_ticket_++);
    batches.push_back(std::move(batch).value());
    return batches.back()->ticket;
  }

  CopyState PollOrWait(CopyTicket ticket, bool wait) {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const auto it = std::ranges::find_if(
          under_way_[i], [&](const auto& batch) { return batch->ticket == ticket; });
      if (it == under_way_[i].end()) continue;
      const CopyState state = StateOf(*lanes_[i], **it, wait);
      if (state == CopyState::kRunning) return state;
      unused_.push_back(std::move(*it));
      under_way_[i].erase(it);
      return state;
    }
    KV_CHECK(false && "a ticket that is not in flight");
    return CopyState::kFailed;
  }

  Status HoldBack(void* stream, CopyTicket ticket) {
    const MutexLock lock(mutex_);
    if (!poison_.empty()) return Poisoned();
    KVCAST_RETURN_IF_ERROR(device_->MakeCurrent());
    for (size_t i = 0; i < lanes_.size(); ++i) {
      for (const auto& batch : under_way_[i]) {
        if (batch->ticket != ticket) continue;
        return lanes_[i]->HoldBack(static_cast<CUstream>(stream), *batch);
      }
    }
    return {StatusCode::kInvalidArgument, "ticket: is not in flight"};
  }

  CudaCopyStats stats() const {
    const MutexLock lock(mutex_);
    CudaCopyStats stats;
    lanes_[0]->WriteTo(stats.loads);
    lanes_[1]->WriteTo(stats.stores);
    stats.loads.calibration_error = calibration_errors_[0];
    stats.stores.calibration_error = calibration_errors_[1];
    stats.poisoned = poison_;
    return stats;
  }

 private:
  using Batches = std::vector<std::unique_ptr<LaneBatch>>;

  Status AddLane(const CudaCopyConfig& config, CopyDirection direction, cuda::ProbeRunner* runner) {
    const auto index = static_cast<size_t>(direction);
    const bool load = direction == CopyDirection::kLoad;
    cuda::LaneConfig lane;
    lane.direction = direction;
    lane.host = config.host;
    lane.rules = {.forced = load ? config.load_path : config.store_path,
                  .has_staging = config.staging_bytes > 0,
                  .kernel_margin = config.kernel_margin};
    lane.staging_bytes = config.staging_bytes;
    lane.unordered_loads = config.unordered_loads;
    lane.prefer_overlap = config.prefer_overlap;
    lane.kernel_blocks = config.kernel_blocks > 0 ? config.kernel_blocks : kDefaultKernelBlocks;
    if (runner != nullptr) {
      const auto& api = device_->api();
      const cuda::CalibrationOptions options{
          .has_rows = cuda::CopyEngine::HasRows(api, cuda::CopyEngine::NewestCall(api)),
          .kernel_blocks = config.kernel_blocks};
      const auto costs = Calibrate(
          options, [&](const cuda::Probe& probe) { return runner->Measure(direction, probe); });
      if (costs.ok()) {
        lane.costs = *costs;
        lane.kernel_blocks = costs->kernel_blocks;
      } else {
        calibration_errors_[index] = costs.status().message();
      }
    }
    auto created = CopyLane::Create(device_, &kernels_, lane);
    if (!created.ok()) return created.status();
    lanes_[index] = std::move(created).value();
    return {};
  }

  Status Poisoned() const KV_REQUIRES(mutex_) {
    return {StatusCode::kUnavailable,
            "the CUDA backend refuses work after a fatal error: " + poison_};
  }

  Result<std::unique_ptr<LaneBatch>> NewBatch() KV_REQUIRES(mutex_) {
    if (!unused_.empty()) {
      auto batch = std::move(unused_.back());
      unused_.pop_back();
      return batch;
    }
    auto done = MakeEvent(device_);
    if (!done.ok()) return done.status();
    auto staged_done = MakeEvent(device_);
    if (!staged_done.ok()) return staged_done.status();
    auto batch = std::make_unique<LaneBatch>();
    batch->done = std::move(done).value();
    batch->staged_done = std::move(staged_done).value();
    return batch;
  }

  CopyState StateOf(CopyLane& lane, LaneBatch& batch, bool wait) KV_REQUIRES(mutex_) {
    if (!poison_.empty()) return CopyState::kFailed;
    if (const Status status = device_->MakeCurrent(); !status.ok()) {
      poison_ = status.message();
      return CopyState::kFailed;
    }
    return wait ? lane.Wait(batch, poison_) : lane.Poll(batch, poison_);
  }

  const CudaDevice device_;
  const CopyKernels kernels_;
  // One thread drives the lanes, but another thread may read the statistics.
  mutable Mutex mutex_;
  std::array<std::unique_ptr<CopyLane>, kDirections.size()> lanes_;  // by direction
  std::array<std::string, kDirections.size()> calibration_errors_;
  std::array<Batches, kDirections.size()> under_way_ KV_GUARDED_BY(mutex_);
  Batches unused_ KV_GUARDED_BY(mutex_);
  uint64_t next_ticket_ KV_GUARDED_BY(mutex_) = 0;
  std::string poison_ KV_GUARDED_BY(mutex_);
};

CudaCopyBackend::CudaCopyBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaCopyBackend::~CudaCopyBackend() = default;

Result<std::unique_ptr<CudaCopyBackend>> CudaCopyBackend::Create(CudaDevice device,
                                                                 const CudaCopyConfig& config) {
  KVCAST_RETURN_IF_ERROR(Validate(config));
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  auto kernels = CopyKernels::Load(device);
  if (!kernels.ok()) return kernels.status();
  auto impl = std::make_unique<Impl>(std::move(device), std::move(kernels).value());
  KVCAST_RETURN_IF_ERROR(impl->AddLanes(config));
  return std::unique_ptr<CudaCopyBackend>(new CudaCopyBackend(std::move(impl)));
}

Result<CopyTicket> CudaCopyBackend::Submit(CopyDirection direction, std::span<const CopyOp> ops,
                                           void* after) {
  return impl_->Submit(direction, ops, after);
}
CopyState CudaCopyBackend::Poll(CopyTicket ticket) { return impl_->PollOrWait(ticket, false); }
CopyState CudaCopyBackend::Wait(CopyTicket ticket) { return impl_->PollOrWait(ticket, true); }
Status CudaCopyBackend::HoldBack(void* stream, CopyTicket ticket) {
  return impl_->HoldBack(stream, ticket);
}
CudaCopyStats CudaCopyBackend::stats() const { return impl_->stats(); }

}  // namespace kvcast
