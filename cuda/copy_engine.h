// CopyEngine: copies by the GPU's DMA engines, with as few driver calls as possible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/device.h"
#include "kvcast/cuda/cuda_memory.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::cuda {

// The driver call that copies: a batched call in the form of driver 13.0 or 12.8, or one call per
// copy.
enum class CopyCall : uint8_t { kBatch13000, kBatch12080, kLoop };

struct CopyEngineOptions {
  CopyCall call = CopyCall::kLoop;
  // True: one descriptor for all rows of a copy, if the call has such descriptors. False: one
  // descriptor for each row.
  bool rows_as_one = false;
  bool unordered = false;       // see CU_MEMCPY_SRC_ACCESS_ORDER_ANY
  bool prefer_overlap = false;  // see CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE
};

// The arguments of the calls of one batch. Drivers do not report when they have read the arguments,
// so the arguments must stay until the copies are done.
struct CopyDescriptors {
  std::vector<CUdeviceptr> dsts;
  std::vector<CUdeviceptr> srcs;
  std::vector<size_t> sizes;
  std::vector<CUDA_MEMCPY3D_BATCH_OP> rows;
};

struct CopyEngineCounts {
  uint64_t calls = 0;
  uint64_t descriptors = 0;
};

class CopyEngine {
 public:
  // The engine cuts copies at the borders of the registrations of `host`. nullptr: it cuts no copy.
  // `host` must outlive the engine.
  CopyEngine(CudaDevice device, const PinnedPool* host) : device_(std::move(device)), host_(host) {}

  static CopyCall NewestCall(const DriverApi& api);
  static bool HasRows(const DriverApi& api, CopyCall call);

  // Enqueues the copies after the work of `stream`. Overwrites `descriptors`, which the caller must
  // keep until the copies are done. Not ok: any of the copies may still run.
  Status Enqueue(CopyDirection direction, std::span<const CopyOp> ops,
                 const CopyEngineOptions& options, CopyDescriptors& descriptors, CUstream stream,
                 CopyEngineCounts& counts) const;

 private:
  void AddRun(CopyDirection direction, const std::byte* src, std::byte* dst, size_t bytes,
              CopyDescriptors& descriptors) const;
  bool CrossesRegistrations(CopyDirection direction, const CopyOp& op) const;
  Status CopyRuns(const CopyEngineOptions& options, CopyDescriptors& descriptors, CUstream stream,
                  CopyEngineCounts& counts) const;
  Status CopyRows(const CopyEngineOptions& options, CopyDescriptors& descriptors, CUstream stream,
                  CopyEngineCounts& counts) const;

  const CudaDevice device_;
  const PinnedPool* const host_;
};

}  // namespace kvcast::cuda
