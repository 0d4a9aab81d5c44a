// SPDX-License-Identifier: Apache-2.0
#include "cuda/staged_copier.h"

#include <algorithm>
#include <string>
#include <utility>

namespace kvcast::cuda {
namespace {

constexpr size_t kMinGrainBytes = size_t{64} << 10;
// Each run starts at a multiple of this number of bytes in its grain. A later fragment of the run
// is aligned if all fragments before it have aligned sizes.
constexpr size_t kRunAlignment = 256;

uint64_t Address(const std::byte* p) { return reinterpret_cast<uint64_t>(p); }

// Splits bytes [offset, offset + bytes) of a copy's rows. Calls `add` for each part: several whole
// rows, or a part of one row.
template <typename Add>
void ForEachStretch(size_t row_bytes, size_t offset, size_t bytes, const Add& add) {
  while (bytes > 0) {
    const size_t in_row = offset % row_bytes;
    const size_t whole = in_row == 0 ? bytes / row_bytes : 0;
    const size_t rows = std::max<size_t>(whole, 1);
    const size_t width = whole > 0 ? row_bytes : std::min(bytes, row_bytes - in_row);
    add(offset / row_bytes, in_row, width, rows);
    offset += width * rows;
    bytes -= width * rows;
  }
}

}  // namespace

bool IsOneHostRun(CopyDirection direction, const CopyOp& op) {
  const size_t pitch = direction == CopyDirection::kLoad ? op.src_pitch : op.dst_pitch;
  return op.rows == 1 || pitch == op.row_bytes;
}

Result<StagedCopier> StagedCopier::Create(const CudaDevice& device, size_t bytes,
                                          const CopyKernels& kernels, const CopyEngine& engine) {
  if (bytes < kGrains * kMinGrainBytes) {
    return Status(StatusCode::kInvalidArgument, "staging_bytes: must be 0 or at least 512 KiB");
  }
  auto memory = CudaMemory::Create(device, bytes);
  if (!memory.ok()) return memory.status();
  auto stream = MakeStream(device);
  if (!stream.ok()) return stream.status();
  auto kernel = KernelCopier::Create(device, kernels);
  if (!kernel.ok()) return kernel.status();
  StagedCopier copier(device, std::move(memory).value(), std::move(stream).value(),
                      std::move(kernel).value(), engine);
  copier.grain_bytes_ = bytes / kGrains / kRunAlignment * kRunAlignment;
  for (size_t i = 0; i < kGrains; ++i) {
    auto filled = MakeEvent(device);
    auto emptied = MakeEvent(device);
    if (!filled.ok()) return filled.status();
    if (!emptied.ok()) return emptied.status();
    copier.grains_.push_back({copier.memory_.base() + i * copier.grain_bytes_,
                              std::move(filled).value(), std::move(emptied).value()});
  }
  return copier;
}

Status StagedCopier::Enqueue(CopyDirection direction, std::span<const CopyOp> ops,
                             const CopyEngineOptions& options, int blocks,
                             DescriptorSets& descriptors, CUstream lane,
                             CopyEngineCounts& engine_counts, KernelCounts& kernel_counts) {
  const bool load = direction == CopyDirection::kLoad;
  for (size_t done = 0; !ops.empty();) {
    Grain& grain = grains_[next_grain_];
    next_grain_ = (next_grain_ + 1) % kGrains;
    FillGrain(direction, ops, done, grain.base);
    const CUstream first = load ? lane : stream();
    const CUstream second = load ? stream() : lane;
    if (grain.used) KVCAST_RETURN_IF_ERROR(Wait(first, grain.emptied));
    grain.used = true;
    const auto copy = [&] {
      return engine_->Enqueue(direction, runs_, options, descriptors.Next(), lane, engine_counts);
    };
    const auto move = [&] {
      return kernel_.Enqueue(aligned_, unaligned_, blocks, stream(), kernel_counts);
    };
    KVCAST_RETURN_IF_ERROR(load ? copy() : move());
    KVCAST_RETURN_IF_ERROR(Record(grain.filled, first));
    KVCAST_RETURN_IF_ERROR(Wait(second, grain.filled));
    KVCAST_RETURN_IF_ERROR(load ? move() : copy());
    KVCAST_RETURN_IF_ERROR(Record(grain.emptied, second));
  }
  return {};
}

void StagedCopier::FillGrain(CopyDirection direction, std::span<const CopyOp>& ops, size_t& done,
                             std::byte* grain) {
  const bool load = direction == CopyDirection::kLoad;
  runs_.clear();
  aligned_.Clear();
  unaligned_.Clear();
  size_t used = 0;
  while (!ops.empty() && used < grain_bytes_) {
    const CopyOp& op = ops.front();
    const size_t bytes = std::min(op.bytes() - done, grain_bytes_ - used);
    std::byte* const staged = grain + used;
    const std::byte* const host = (load ? op.src : op.dst) + done;
    CopyOp run{load ? host : staged, load ? staged : const_cast<std::byte*>(host), bytes, 0, 0, 1};
    if (!runs_.empty() && runs_.back().src + runs_.back().row_bytes == run.src &&
        runs_.back().dst + runs_.back().row_bytes == run.dst) {
      runs_.back().row_bytes += bytes;
    } else {
      runs_.push_back(run);
    }
    size_t staged_offset = 0;
    ForEachStretch(
        op.row_bytes, done, bytes, [&](size_t row, size_t in_row, size_t width, size_t rows) {
          const size_t gpu_pitch = load ? op.dst_pitch : op.src_pitch;
          const std::byte* const gpu = (load ? op.dst : op.src) + row * gpu_pitch + in_row;
          CopyOp piece{nullptr,
                       nullptr,
                       width,
                       load ? width : gpu_pitch,
                       load ? gpu_pitch : width,
                       static_cast<uint32_t>(rows)};
          CutIntoPieces(piece, Address(load ? staged + staged_offset : gpu),
                        Address(load ? gpu : staged + staged_offset), aligned_, unaligned_);
          staged_offset += width * rows;
        });
    used += bytes;
    done += bytes;
    if (done < op.bytes()) break;
    done = 0;
    ops = ops.subspan(1);
    // Copies that are adjacent in host memory stay adjacent in the ring, so that they are one run.
    const bool follows = !ops.empty() && (load ? ops.front().src : ops.front().dst) == host + bytes;
    if (!follows) used = (used + kRunAlignment - 1) / kRunAlignment * kRunAlignment;
  }
}

Status StagedCopier::Wait(CUstream stream, const Event& event) const {
  return device_->Check(device_->api().StreamWaitEvent(stream, event.get(), CU_EVENT_WAIT_DEFAULT),
                        "cuStreamWaitEvent");
}

Status StagedCopier::Record(const Event& event, CUstream stream) const {
  return device_->Check(device_->api().EventRecord(event.get(), stream), "cuEventRecord");
}

}  // namespace kvcast::cuda
