// SPDX-License-Identifier: Apache-2.0
#include "cuda/copy_lane.h"

#include <utility>

namespace kvcast::cuda {
namespace {

// For larger copies, the request for overlap lowers the rate on some links.
constexpr size_t kMaxOverlapBytes = size_t{128} << 10;

}  // namespace

CopyLane::CopyLane(const CudaDevice& device, const LaneConfig& config, Stream stream)
    : device_(device),
      config_(config),
      stream_(std::move(stream)),
      engine_(device, config.host),
      call_(CopyEngine::NewestCall(device->api())),
      chooser_(config.rules, config.costs) {}

Result<std::unique_ptr<CopyLane>> CopyLane::Create(const CudaDevice& device,
                                                   const CopyKernels* kernels,
                                                   const LaneConfig& config) {
  auto stream = MakeStream(device);
  if (!stream.ok()) return stream.status();
  std::unique_ptr<CopyLane> lane(new CopyLane(device, config, std::move(stream).value()));
  if (kernels == nullptr) return lane;
  auto kernel = KernelCopier::Create(device, *kernels);
  if (!kernel.ok()) return kernel.status();
  lane->kernel_.emplace(std::move(kernel).value());
  if (config.staging_bytes == 0) return lane;
  auto staged = StagedCopier::Create(device, config.staging_bytes, *kernels, lane->engine_);
  if (!staged.ok()) return staged.status();
  lane->staged_.emplace(std::move(staged).value());
  return lane;
}

Status CopyLane::Start(std::span<const CopyOp> ops, CUevent after, LaneBatch& batch,
                       std::string& poison) {
  const DriverApi& api = device_->api();
  if (after != nullptr) {
    const auto wait = [&](CUstream stream) {
      return device_->Check(api.StreamWaitEvent(stream, after, CU_EVENT_WAIT_DEFAULT),
                            "cuStreamWaitEvent");
    };
    KVCAST_RETURN_IF_ERROR(wait(stream_.get()));
    // The kernel that gathers a store runs in the stream of staged_, which does not wait for the
    // lane's stream. So the stream of staged_ must wait for the event too.
    if (staged_) KVCAST_RETURN_IF_ERROR(wait(staged_->stream()));
  }
  ++batches_;
  batch.staged = false;
  batch.failed = false;
  batch.descriptors.Reset();
  Status status = Enqueue(ops, after != nullptr, batch);
  if (status.ok()) {
    status = device_->Check(api.EventRecord(batch.done.get(), stream_.get()), "cuEventRecord");
  }
  if (status.ok() && batch.staged) {
    status = device_->Check(api.EventRecord(batch.staged_done.get(), staged_->stream()),
                            "cuEventRecord");
  }
  if (kernel_) batch.tables = kernel_->position();
  if (staged_) batch.staged_tables = staged_->position();
  if (status.ok()) return {};
  // Some of the copies may be in progress.
  batch.failed = true;
  ++failed_batches_;
  if (const Status drained = Drain(); !drained.ok()) {
    poison = status.message() + "; then " + drained.message();
  }
  return {};
}

Status CopyLane::Enqueue(std::span<const CopyOp> ops, bool ordered, LaneBatch& batch) {
  uint64_t seen = 0;
  static_assert(PathChooser::kClasses <= 64);
  for (const CopyOp& op : ops) {
    if (op.bytes() == 0) continue;
    const size_t index = PathChooser::ClassOf(op.row_bytes);
    Class& size_class = classes_[index];
    if ((seen >> index & 1) == 0) {
      size_class.shape = {};
      size_class.ops.clear();
      seen |= uint64_t{1} << index;
    }
    size_class.shape.Add(config_.direction, op);
    size_class.ops.push_back(op);
  }
  for (size_t i = 0; i < PathChooser::kClasses; ++i) {
    if ((seen >> i & 1) == 0) continue;
    const CudaCopyPath path = chooser_.Choose(classes_[i].shape);
    KVCAST_RETURN_IF_ERROR(EnqueueBy(path, classes_[i], ordered, batch));
  }
  return {};
}

Status CopyLane::EnqueueBy(CudaCopyPath path, const Class& size_class, bool ordered,
                           LaneBatch& batch) {
  const CopyEngineOptions options = OptionsFor(size_class.shape, ordered);
  switch (path) {
    case CudaCopyPath::kCopyEngine:
      return engine_.Enqueue(config_.direction, size_class.ops, options, batch.descriptors.Next(),
                             stream_.get(), engine_counts_);
    case CudaCopyPath::kKernel:
      return EnqueueKernel(size_class.ops);
    case CudaCopyPath::kStaged:
      batch.staged = true;
      return staged_->Enqueue(config_.direction, size_class.ops, options, config_.kernel_blocks,
                              batch.descriptors, stream_.get(), engine_counts_, kernel_counts_);
  }
  return {};
}

Status CopyLane::EnqueueKernel(std::span<const CopyOp> ops) {
  aligned_.Clear();
  unaligned_.Clear();
  for (const CopyOp& op : ops) {
    CutIntoPieces(op, GpuAddress(op.src), GpuAddress(op.dst), aligned_, unaligned_);
  }
  return kernel_->Enqueue(aligned_, unaligned_, config_.kernel_blocks, stream_.get(),
                          kernel_counts_);
}

CopyEngineOptions CopyLane::OptionsFor(const CopyShape& shape, bool ordered) const {
  const bool load = config_.direction == CopyDirection::kLoad;
  return {
      .call = call_,
      .rows_as_one = config_.costs.measured && RowsAsOneIsCheaper(config_.costs, shape),
      // A source may be read early only if no earlier work can write it.
      .unordered = load && config_.unordered_loads && !ordered,
      .prefer_overlap = config_.prefer_overlap && shape.bytes / shape.copies <= kMaxOverlapBytes};
}

uint64_t CopyLane::GpuAddress(const std::byte* address) const {
  const bool host = config_.host->Contains(address);
  return reinterpret_cast<uint64_t>(host ? config_.host->DeviceAddress(address) : address);
}

CopyState CopyLane::End(LaneBatch& batch) {
  if (kernel_) kernel_->Release(batch.tables);
  // The end of another batch does not show that the kernels of earlier staged batches have ended.
  if (batch.staged) staged_->Release(batch.staged_tables);
  return batch.failed ? CopyState::kFailed : CopyState::kDone;
}

CopyState CopyLane::StateOf(CUresult result, LaneBatch& batch, std::string& poison) {
  if (result == CUDA_SUCCESS) return End(batch);
  if (result == CUDA_ERROR_NOT_READY) return CopyState::kRunning;
  ++failed_batches_;
  batch.failed = true;
  poison = device_->Check(result, "a copy in flight").message();
  return CopyState::kFailed;
}

CopyState CopyLane::Poll(LaneBatch& batch, std::string& poison) {
  if (batch.failed) return End(batch);
  const DriverApi& api = device_->api();
  CUresult result = api.EventQuery(batch.done.get());
  if (result == CUDA_SUCCESS && batch.staged) result = api.EventQuery(batch.staged_done.get());
  return StateOf(result, batch, poison);
}

CopyState CopyLane::Wait(LaneBatch& batch, std::string& poison) {
  if (batch.failed) return End(batch);
  const DriverApi& api = device_->api();
  CUresult result = api.EventSynchronize(batch.done.get());
  if (result == CUDA_SUCCESS && batch.staged) {
    result = api.EventSynchronize(batch.staged_done.get());
  }
  return StateOf(result, batch, poison);
}

Status CopyLane::HoldBack(CUstream stream, const LaneBatch& batch) const {
  const DriverApi& api = device_->api();
  KVCAST_RETURN_IF_ERROR(device_->Check(
      api.StreamWaitEvent(stream, batch.done.get(), CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent"));
  if (!batch.staged) return {};
  return device_->Check(api.StreamWaitEvent(stream, batch.staged_done.get(), CU_EVENT_WAIT_DEFAULT),
                        "cuStreamWaitEvent");
}

Status CopyLane::Drain() const {
  const DriverApi& api = device_->api();
  Status status = device_->Check(api.StreamSynchronize(stream_.get()), "cuStreamSynchronize");
  if (!staged_) return status;
  Status staged = device_->Check(api.StreamSynchronize(staged_->stream()), "cuStreamSynchronize");
  return status.ok() ? staged : status;
}

void CopyLane::WriteTo(CudaCopyStats::Lane& stats) const {
  stats.costs = chooser_.costs();
  stats.costs.kernel_blocks = config_.kernel_blocks;
  stats.classes = chooser_.classes();
  stats.batches = batches_;
  stats.failed_batches = failed_batches_;
  stats.driver_calls = engine_counts_.calls + kernel_counts_.launches;
  stats.descriptors = engine_counts_.descriptors;
  stats.pieces = kernel_counts_.pieces;
  stats.table_waits = kernel_counts_.table_waits;
}

}  // namespace kvcast::cuda
