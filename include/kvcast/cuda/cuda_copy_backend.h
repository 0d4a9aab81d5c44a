// CudaCopyBackend: copies between a GPU and pinned host memory.
//
// Three paths, all of them behind one queue in each direction:
//   copy engine   the GPU's DMA engines, by batched calls; costs no multiprocessor, but CPU time
//                 for every fragment
//   kernel        a few multiprocessors read and write host memory themselves; for small fragments
//   staged        a DMA engine moves runs of host memory to or from a ring on the GPU, a kernel
//                 gathers or scatters there; for fragments that are small on the GPU only
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

// What TransferConfig should say: small enough that a load never waits long behind a store.
inline constexpr size_t kCudaBatchBytes = size_t{4} << 20;
inline constexpr size_t kCudaBatchOps = 512;

struct CudaCopyConfig {
  // Borrowed. The host's side of every copy lies in it.
  const PinnedPool* host = nullptr;
  // None: chosen for every size of fragment, by costs measured at the start.
  std::optional<CudaCopyPath> load_path;
  std::optional<CudaCopyPath> store_path;
  // False: nothing is measured, and choices follow a rule of thumb.
  bool calibrate = true;
  // What the kernel's time must be below the copy engine's, as a part of it: multiprocessors are
  // taken from the model.
  double kernel_margin = 0.15;
  // Thread blocks of a copy kernel, each on a multiprocessor of its own. 0: as few as fill the
  // link.
  int kernel_blocks = 0;
  // Ring of the staged path on the GPU, for each direction. 0: that path is not there.
  size_t staging_bytes = size_t{32} << 20;
  // Lets the driver read the source of a load out of the queue's order. Only for loads that wait
  // for no event, and only where it was measured to be faster.
  bool unordered_loads = false;
  // Asks for engines that leave the multiprocessors alone, where all fragments are small.
  bool prefer_overlap = false;
};

// Costs of one direction, seconds and bytes per second.
struct CudaCopyCosts {
  bool measured = false;
  double link_rate = 0;        // one large copy
  double engine_start = 0;     // of a call
  double engine_per_copy = 0;  // CPU time of a descriptor
  double engine_per_row = 0;   // of a descriptor with rows; infinite: there are none
  double kernel_start = 0;     // of a launch
  double kernel_per_piece = 0;
  double kernel_rate = 0;  // with kernel_blocks
  int kernel_blocks = 0;
  double device_rate = 0;  // gather or scatter on the GPU, with kernel_blocks
};

struct CudaCopyStats {
  // Fragments of [fragment_bytes, 2 * fragment_bytes).
  struct SizeClass {
    size_t fragment_bytes = 0;
    CudaCopyPath choice = CudaCopyPath::kCopyEngine;  // the last one
    // What the last choice expected, in seconds, by path; 0: not considered.
    std::array<double, kNumCudaCopyPaths> expected{};
    std::array<uint64_t, kNumCudaCopyPaths> copies{};
    std::array<uint64_t, kNumCudaCopyPaths> bytes{};
  };
  struct Lane {
    CudaCopyCosts costs;
    std::string calibration_error;   // empty: none
    std::vector<SizeClass> classes;  // that have been seen, by size
    uint64_t batches = 0;
    uint64_t failed_batches = 0;
    uint64_t driver_calls = 0;  // that copy or launch
    uint64_t descriptors = 0;   // of copy engines
    uint64_t pieces = 0;        // of kernels
    uint64_t table_waits = 0;   // for room in a ring
  };
  Lane loads;
  Lane stores;
  // Why nothing is copied any more; empty: all is well.
  std::string poisoned;
};

// A batch of which a part could not be started is failed as a whole, after the queue has run empty.
// Where even that cannot be known, the backend is poisoned: all that is under way has failed, and
// nothing is accepted any more.
//
// `after` of Submit is a CUevent or cudaEvent_t of the same GPU. A store must be given one that was
// recorded behind the computation that writes its blocks; a load, one behind the last computation
// that reads or clears its blocks, unless that is known to have ended.
class CudaCopyBackend final : public CopyBackend {
 public:
  // Not ok: a field of the configuration, by name; kUnavailable with the driver's error.
  static Result<std::unique_ptr<CudaCopyBackend>> Create(CudaDevice device,
                                                         const CudaCopyConfig& config);
  // Waits for all copies.
  ~CudaCopyBackend() override;

  std::string_view name() const override { return "cuda"; }
  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops,
                            void* after) override;
  CopyState Poll(CopyTicket ticket) override;
  CopyState Wait(CopyTicket ticket) override;

  // Lets a CUstream or cudaStream_t wait for a batch that is under way, without the CPU.
  Status HoldBack(void* stream, CopyTicket ticket);

  CudaCopyStats stats() const;

 private:
  class Impl;
  explicit CudaCopyBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
