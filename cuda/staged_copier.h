// StagedCopier: a copy engine moves whole runs of host memory to or from a ring on the GPU, a
// kernel gathers or scatters there. The link sees large copies whatever the pool looks like, and
// the kernel is done in the time of the GPU's own memory.
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

// Arguments of the driver's calls of one batch, kept for their memory.
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

// True: the rows of a copy are one run on the host's side.
bool IsOneHostRun(CopyDirection direction, const CopyOp& op);

// Two streams: the lane's, where the copy engine works, and its own for the kernel.
//   load:  lane: copy into a grain of the ring | own: scatter it
//   store: own: gather into a grain            | lane: copy out of it
// A grain is filled again once the second half is done with it, which only the GPU waits for.
class StagedCopier {
 public:
  static constexpr size_t kGrains = 8;

  // `kernels` and `engine` outlive the copier. Not ok: kInvalidArgument naming staging_bytes.
  static Result<StagedCopier> Create(const CudaDevice& device, size_t bytes,
                                     const CopyKernels& kernels, const CopyEngine& engine);

  // REQUIRES: IsOneHostRun for each of the copies. A load's copies are done when both streams are;
  // a store's when the lane's is. Not ok: any of the copies may happen.
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

  // Takes of `ops`, from row `row` of the first on, what a grain has room for: runs_ and pieces.
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
  Pieces odd_;
};

}  // namespace kvcast::cuda
