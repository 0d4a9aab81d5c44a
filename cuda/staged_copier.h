// StagedCopier: a copy engine moves whole runs of host memory to or from a ring on the GPU. A
// kernel moves the bytes between the ring and the pool. The link transfers large copies, whatever
// the layout of the pool. The kernel accesses only the GPU's own memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cuda/copy_engine.h"
#include "cuda/kernel_copier.h"
#include "kvcast/cuda/cuda_memory.h"

namespace kvcast::cuda {

// The arguments of the driver calls of one batch. The object is reused to keep its memory.
class DescriptorSets {
 public:
  CopyDescriptors& Next() {
    if (used_ == sets_.size()) sets_.emplace_back();
    return sets_[used_++];
  }
  void Reset() { used_ = 0; }

 private:
  std::deque<CopyDescriptors> sets_;
  size_t used_ = 0;
};

// True if the rows of a copy are contiguous on the host's side.
bool IsOneHostRun(CopyDirection direction, const CopyOp& op);

// The ring has kGrains parts of equal size, the grains. The copier uses two streams: the lane's
// stream for the copy engine, and its own stream for the kernel.
//   load:  lane: copy into a grain  | own: scatter the bytes of the grain
//   store: own: gather into a grain | lane: copy the bytes of the grain
// A grain is filled again when its previous bytes have left the grain. The streams of the GPU wait
// for this. The CPU does not wait.
class StagedCopier {
 public:
  static constexpr size_t kGrains = 8;

  // `kernels` and `engine` must outlive the copier. kInvalidArgument: `bytes` is too small. Any
  // other error: no memory, or a driver call failed.
  static Result<StagedCopier> Create(const CudaDevice& device, size_t bytes,
                                     const CopyKernels& kernels, const CopyEngine& engine);

  // REQUIRES: IsOneHostRun for each copy. The copies of a load are done when both streams are done;
  // the copies of a store are done when the lane's stream is done. Not ok: any of the copies may
  // still run.
  Status Enqueue(CopyDirection direction, std::span<const CopyOp> ops,
                 const CopyEngineOptions& options, int blocks, DescriptorSets& descriptors,
                 CUstream lane, CopyEngineCounts& engine_counts, KernelCounts& kernel_counts);

  CUstream stream() const { return stream_.get(); }
  uint64_t position() const { return kernel_.position(); }
  void Release(uint64_t position) { kernel_.Release(position); }

 private:
  struct Grain {
    std::byte* base = nullptr;
    Event filled;
    Event emptied;
    bool used = false;
  };

  StagedCopier(CudaDevice device, CudaMemory memory, Stream stream, KernelCopier kernel,
               const CopyEngine& engine)
      : device_(std::move(device)),
        memory_(std::move(memory)),
        stream_(std::move(stream)),
        kernel_(std::move(kernel)),
        engine_(&engine) {}

  // Fills runs_ and the pieces with the part of `ops` that fits in a grain, and removes this part
  // from `ops`. The part starts at byte `done` of the first op.
  void FillGrain(CopyDirection direction, std::span<const CopyOp>& ops, size_t& done,
                 std::byte* grain);
  Status Wait(CUstream stream, const Event& event) const;
  Status Record(const Event& event, CUstream stream) const;

  CudaDevice device_;
  CudaMemory memory_;
  Stream stream_;
  KernelCopier kernel_;
  const CopyEngine* engine_;
  size_t grain_bytes_ = 0;
  std::vector<Grain> grains_;
  size_t next_grain_ = 0;
  std::vector<CopyOp> runs_;  // between host memory and the grain
  Pieces aligned_;            // between the grain and the pool
  Pieces unaligned_;
};

}  // namespace kvcast::cuda
