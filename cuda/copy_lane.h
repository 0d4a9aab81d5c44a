// CopyLane: the batches of one direction. The lane has one stream. With staging, it has a second
// stream for the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/copy_engine.h"
#include "cuda/handles.h"
#include "cuda/kernel_copier.h"
#include "cuda/path_chooser.h"
#include "cuda/staged_copier.h"
#include "kvcast/cuda/cuda_copy_backend.h"

namespace kvcast::cuda {

// One batch in flight: the events that mark its end, and the data that must not change until then.
// The object is reused, so that its lists keep their memory.
struct LaneBatch {
  CopyTicket ticket;
  Event done;
  Event staged_done;
  bool staged = false;  // the batch also waits for staged_done
  bool failed = false;
  DescriptorSets descriptors;
  uint64_t tables = 0;  // see KernelCopier::position
  uint64_t staged_tables = 0;
};

struct LaneConfig {
  CopyDirection direction = CopyDirection::kLoad;
  const PinnedPool* host = nullptr;
  PathRules rules;
  CudaCopyCosts costs;
  int kernel_blocks = 4;
  size_t staging_bytes = 0;  // 0: the lane has no staging
  bool unordered_loads = false;
  bool prefer_overlap = false;
};

class CopyLane {
 public:
  // `kernels` must outlive the lane. nullptr: the lane has only the copy engine.
  static Result<std::unique_ptr<CopyLane>> Create(const CudaDevice& device,
                                                  const CopyKernels* kernels,
                                                  const LaneConfig& config);

  // Starts a batch and fills `batch`. The copies wait for the event `after`; nullptr: they do not
  // wait. Not ok: no copy was started. If an error occurs after the start of a copy, Start returns
  // ok, sets `batch.failed`, and waits until no copy of the lane runs. If this wait fails, Start
  // sets `poison` to the error text, because copies may still run.
  Status Start(std::span<const CopyOp> ops, CUevent after, LaneBatch& batch, std::string& poison);
  // Poll and Wait set `poison` to the error text if the driver returns an error for the batch.
  CopyState Poll(LaneBatch& batch, std::string& poison);
  CopyState Wait(LaneBatch& batch, std::string& poison);
  // Later work of `stream` waits for the end of the batch.
  Status HoldBack(CUstream stream, const LaneBatch& batch) const;
  // Waits for the end of all batches.
  Status Drain() const;

  // Sets all fields of `stats` except calibration_error.
  void WriteTo(CudaCopyStats::Lane& stats) const;

 private:
  CopyLane(const CudaDevice& device, const LaneConfig& config, Stream stream);

  // The copies of one size class.
  struct Class {
    CopyShape shape;
    std::vector<CopyOp> ops;
  };

  Status Enqueue(std::span<const CopyOp> ops, bool ordered, LaneBatch& batch);
  Status EnqueueBy(CudaCopyPath path, const Class& size_class, bool ordered, LaneBatch& batch);
  Status EnqueueKernel(std::span<const CopyOp> ops);
  CopyEngineOptions OptionsFor(const CopyShape& shape, bool ordered) const;
  uint64_t GpuAddress(const std::byte* address) const;
  CopyState StateOf(CUresult result, LaneBatch& batch, std::string& poison);
  CopyState End(LaneBatch& batch);

  const CudaDevice device_;
  const LaneConfig config_;
  const Stream stream_;
  const CopyEngine engine_;
  const CopyCall call_;
  std::optional<KernelCopier> kernel_;
  std::optional<StagedCopier> staged_;
  PathChooser chooser_;
  std::array<Class, PathChooser::kClasses> classes_;  // scratch memory
  Pieces aligned_;                                    // scratch memory
  Pieces unaligned_;                                  // scratch memory
  CopyEngineCounts engine_counts_;
  KernelCounts kernel_counts_;
  uint64_t batches_ = 0;
  uint64_t failed_batches_ = 0;
};

}  // namespace kvcast::cuda
