// BenchArena: a pool on the GPU and a pool in host memory, their content, and the methods that copy
// between the two pools.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/copy/copy_bench.h"
#include "apps/gpu/tool_kernels.h"
#include "cuda/handles.h"
#include "cuda/kernel_copier.h"
#include "kvcast/core/ids.h"
#include "kvcast/cuda/cuda_memory.h"
#include "kvcast/transfer/block_layout.h"

namespace kvcast::cuda {

class BenchArena {
 public:
  static constexpr size_t kGuardBytes = size_t{1} << 20;

  // Allocates a pool of `bytes` on the GPU and one in host memory, with kGuardBytes before and
  // after each pool.
  static Result<std::unique_ptr<BenchArena>> Create(const CudaDevice& device, size_t bytes);

  const CudaDevice& device() const { return device_; }
  const PinnedPool& host_pool() const { return host_; }
  CUstream stream() const { return stream_.get(); }
  const ToolKernels& tools() const { return tools_; }
  std::byte* gpu() const { return gpu_.base() + kGuardBytes; }
  std::byte* host() const { return host_.base() + kGuardBytes; }
  size_t bytes() const { return host_.bytes() - 2 * kGuardBytes; }

  // Fills the source of a direction. Each word of 8 bytes encodes its position.
  Status FillSource(CopyDirection direction);
  // Fills the destination of a direction with the poison: one byte, repeated. No word of the source
  // consists of poison only.
  Status PoisonTarget(CopyDirection direction);
  // Computes the expected bytes of the destination: the poison, and the bytes of the copies.
  // REQUIRES: each copy has one row.
  void ExpectCopies(CopyDirection direction, const std::vector<CopyOp>& ops);
  // Not ok: the destination differs from the expected bytes, or the source has changed. REQUIRES:
  // FillSource, ExpectCopies and PoisonTarget were called in this order, with this direction.
  Status Verify(CopyDirection direction);

  // Executes one plain copy of `bytes` bytes and waits for its end.
  Status CopyPlain(CopyDirection direction, size_t bytes);
  Status Synchronize() const;

 private:
  BenchArena(CudaDevice device, CudaMemory gpu, PinnedPool host, PinnedPool mirror, Stream stream,
             ToolKernels tools)
      : device_(std::move(device)),
        gpu_(std::move(gpu)),
        host_(std::move(host)),
        mirror_(std::move(mirror)),
        stream_(std::move(stream)),
        tools_(std::move(tools)) {}

  Status CopyNow(std::byte* dst, const std::byte* src, size_t bytes);

  const CudaDevice device_;
  const CudaMemory gpu_;
  const PinnedPool host_;
  const PinnedPool mirror_;  // host copy of the GPU's pool
  const Stream stream_;
  const ToolKernels tools_;
  std::vector<std::byte> source_;  // expected bytes of the source
  std::vector<std::byte> target_;  // expected bytes of the destination
};

// The blocks of one shape, and their copies.
struct BenchWork {
  CopyBenchShape shape;
  GroupLayout layout;
  HostLayout host;
  std::vector<BlockId> blocks;
  std::vector<SlotId> slots;
  size_t payload_bytes = 0;
  std::vector<CopyOp> fragments;  // one row each, in the order of the blocks
};
// The work has payload_bytes / (bytes per block) blocks, but at least 1 and at most
// shape.max_blocks.
BenchWork MakeBenchWork(const BenchArena& arena, const CopyBenchShape& shape, size_t payload_bytes);

// A way to copy the fragments of a BenchWork. `run` returns when the bytes have arrived.
struct BenchMethod {
  std::string name;
  bool rival = false;                               // reimplements a method of another project
  std::function<Status(const BenchWork&)> prepare;  // not part of the measured time; may be empty
  std::function<Status()> run;
  std::function<std::string()> chosen;  // name of the path; may be empty
};
// Returns the methods of this library, then the rivals. The first method uses the path that the
// library chooses. Each of the next three uses one fixed path.
Result<std::vector<BenchMethod>> MakeBenchMethods(const std::shared_ptr<BenchArena>& arena);

double Quantile(std::vector<double> values, double q);

}  // namespace kvcast::cuda
