// KernelCopier: copies with a few multiprocessors. A table in pinned memory lists the moves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/handles.h"
#include "cuda/pieces.h"
#include "cuda/table_ring.h"
#include "kvcast/cuda/cuda_memory.h"

namespace kvcast::cuda {

// The loaded copy kernels.
struct CopyKernels {
  Module module;
  CUfunction ring = nullptr;  // nullptr: this GPU cannot run this kernel
  CUfunction warps = nullptr;

  static Result<CopyKernels> Load(const CudaDevice& device);
};

struct KernelCounts {
  uint64_t launches = 0;
  uint64_t pieces = 0;
  uint64_t table_waits = 0;
};

// Runs launches one after the other in one stream. A launch is short, so that the model's kernels
// can run between launches.
class KernelCopier {
 public:
  static constexpr size_t kLaunchBytes = size_t{32} << 20;
  static constexpr size_t kLaunchPieces = size_t{1} << 15;
  static constexpr size_t kTableBytes = size_t{4} << 20;  // room for several launches

  // `kernels` must outlive the copier.
  static Result<KernelCopier> Create(const CudaDevice& device, const CopyKernels& kernels);

  // Enqueues the copies after the work of `stream`, which must be the same stream in all calls. If
  // the tables of earlier launches leave no room, waits for these launches. Not ok: any of the
  // copies may still run.
  Status Enqueue(const Pieces& aligned, const Pieces& unaligned, int blocks, CUstream stream,
                 KernelCounts& counts);

  // The position after the tables of all launches so far. Call Release with this position when
  // these launches have ended.
  uint64_t position() const { return tables_.position(); }
  void Release(uint64_t position) { tables_.Release(position); }

 private:
  KernelCopier(CudaDevice device, const CopyKernels& kernels, PinnedPool memory)
      : device_(std::move(device)), kernels_(&kernels), memory_(std::move(memory)) {}

  Status Launch(const Pieces& pieces, size_t begin, size_t end, bool ring, int blocks,
                CUstream stream, KernelCounts& counts);
  Result<size_t> TakeTable(size_t bytes, CUstream stream, KernelCounts& counts);

  CudaDevice device_;
  const CopyKernels* kernels_;
  PinnedPool memory_;
  TableRing tables_{kTableBytes};
};

}  // namespace kvcast::cuda
