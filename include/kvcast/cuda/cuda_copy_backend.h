// CudaCopyBackend: a CopyBackend that copies between a GPU and pinned host memory.
//
// Each direction has one queue and three copy paths. A fragment is one row of a copy (see CopyOp).
//   copy engine   batched calls to the DMA engines of the GPU. This path uses no multiprocessor. It
//                 costs CPU time for each fragment.
//   kernel        a few multiprocessors read and write host memory directly. For small fragments.
//   staged        a DMA engine moves runs of host memory to or from a ring on the GPU, and a kernel
//                 gathers or scatters there. For fragments that are small on the GPU and adjacent
//                 in host memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_device.h"
#include "kvcast/cuda/cuda_memory.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast {

enum class CudaCopyPath : uint8_t { kCopyEngine, kKernel, kStaged };
inline constexpr size_t kNumCudaCopyPaths = 3;
std::string_view CudaCopyPathName(CudaCopyPath path);  // "copy-engine", "kernel", "staged"

// Recommended values of TransferConfig::max_batch_bytes and max_batch_ops. They are small, so that
// a load waits only a short time for a running store.
inline constexpr size_t kCudaBatchBytes = size_t{4} << 20;
inline constexpr size_t kCudaBatchOps = 512;

struct CudaCopyConfig {
  // Host memory of all copies: the host side of every copy must be inside this pool. Borrowed; the
  // pool must outlive the backend.
  const PinnedPool* host = nullptr;
  // nullopt: the backend chooses a path per fragment size, by costs that it measures at the start.
  // Otherwise the backend uses the given path; copies that this path cannot execute use the copy
  // engine.
  std::optional<CudaCopyPath> load_path;
  std::optional<CudaCopyPath> store_path;
  // False: the backend measures nothing and chooses paths by a fixed rule.
  bool calibrate = true;
  // Penalty on the expected time of the kernel path, as a fraction. The kernel is preferred to the
  // copy engine only if its expected time * (1 + kernel_margin) is below the expected time of the
  // copy engine. The reason is that kernels take multiprocessors from the model. A third of the
  // penalty applies to the staged path. A fragment size keeps its previous path until another path
  // has less than 0.9 of the previous path's time, penalties included. Must not be negative.
  double kernel_margin = 0.15;
  // Number of thread blocks of a copy kernel, at most 1024; each occupies one multiprocessor. 0:
  // the smallest number that saturates the link; without calibration 4.
  int kernel_blocks = 0;
  // Size in bytes of the ring of the staged path on the GPU, per direction. 0: the staged path is
  // off.
  size_t staging_bytes = size_t{32} << 20;
  // True: the driver may read the source of a load before the earlier copies of the queue have
  // ended. This applies only to loads that wait for no event.
  bool unordered_loads = false;
  // True: if the copies of one size class in a batch have at most 128 KiB on average, the backend
  // requests copies that overlap with kernels (CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE).
  bool prefer_overlap = false;
};

// Measured costs of one direction, in seconds and bytes per second.
struct CudaCopyCosts {
  bool measured = false;
  double link_rate = 0;        // rate of one large copy
  double engine_start = 0;     // seconds per call
  double engine_per_copy = 0;  // CPU seconds per descriptor
  // CPU seconds per row of a descriptor with several rows, in addition to engine_per_copy.
  // Infinite: the driver has no such descriptors.
  double engine_per_row = 0;
  double kernel_start = 0;      // seconds per launch
  double kernel_per_piece = 0;  // seconds per piece; a piece is at most 16 KiB of one row
  double kernel_rate = 0;       // rate with kernel_blocks thread blocks
  int kernel_blocks = 0;
  // Rate of gather or scatter on the GPU, with kernel_blocks thread blocks.
  double device_rate = 0;
};

struct CudaCopyStats {
  // Copies with fragments of [fragment_bytes, 2 * fragment_bytes) bytes.
  struct SizeClass {
    size_t fragment_bytes = 0;
    CudaCopyPath choice = CudaCopyPath::kCopyEngine;  // the most recent choice
    // Expected time in seconds at the most recent choice, by path. 0: the path was not considered.
    std::array<double, kNumCudaCopyPaths> expected{};
    std::array<uint64_t, kNumCudaCopyPaths> copies{};
    std::array<uint64_t, kNumCudaCopyPaths> bytes{};
  };
  struct Lane {
    CudaCopyCosts costs;
    std::string calibration_error;   // empty: no error
    std::vector<SizeClass> classes;  // all classes that have occurred, by size
    uint64_t batches = 0;
    uint64_t failed_batches = 0;
    uint64_t driver_calls = 0;  // driver calls that copy or launch
    uint64_t descriptors = 0;   // descriptors that the copy engines got
    uint64_t pieces = 0;        // pieces that the kernels got
    uint64_t table_waits = 0;   // waits for space for a table of pieces
  };
  Lane loads;
  Lane stores;
  // The reason why the backend has stopped copying. Empty: the backend works.
  std::string poisoned;
};

// If a part of a batch cannot be started, the backend waits until the queue is empty, and the whole
// batch fails. The backend is poisoned if it cannot determine that the queue is empty, or if the
// driver reports an error for a batch in progress. All batches in progress then fail, and the
// backend accepts no further batch.
//
// `after` of Submit is a CUevent or cudaEvent_t of the same GPU. For a store, the event must be
// recorded after the computation that writes the blocks of the store. For a load, the event must be
// recorded after the last computation that reads or clears the blocks of the load. Exception: this
// computation is known to have ended.
//
// Thread-compatible, like every CopyBackend. stats() is thread-safe.
class CudaCopyBackend final : public CopyBackend {
 public:
  // Errors: kInvalidArgument (the message names the field of the configuration); kExhausted if
  // memory is short; kUnavailable with the error of the driver.
  static Result<std::unique_ptr<CudaCopyBackend>> Create(CudaDevice device,
                                                         const CudaCopyConfig& config);
  // Waits for all copies.
  ~CudaCopyBackend() override;

  std::string_view name() const override { return "cuda"; }
  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops,
                            void* after) override;
  CopyState Poll(CopyTicket ticket) override;
  CopyState Wait(CopyTicket ticket) override;

  // Makes a stream (CUstream or cudaStream_t) wait on the GPU for a batch that is in progress. The
  // call does not block the CPU. Errors: kInvalidArgument if the batch is not in progress;
  // kUnavailable if the backend is poisoned, or with the error of the driver.
  Status HoldBack(void* stream, CopyTicket ticket);

  CudaCopyStats stats() const;

 private:
  class Impl;
  explicit CudaCopyBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
