// The benchmark of copies between a GPU and host memory. It compares this library with other
// methods. A result is a share of the rate of one plain copy of pinned memory in the same run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_device.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::cuda {

enum class BlockOrder : uint8_t { kRandom, kRunsOfFour, kSequential };

// The copied data: whole blocks of `rows` rows of `row_bytes`. In the GPU pool, a layer contains
// one row of every block, and the rows of a block are one layer apart. In host memory, the rows of
// a block are adjacent.
struct CopyBenchShape {
  CopyDirection direction = CopyDirection::kLoad;
  size_t row_bytes = 0;
  uint32_t rows = 1;
  BlockOrder order = BlockOrder::kRandom;
  size_t max_blocks = SIZE_MAX;
};
// The shapes that CopyBenchTarget has a target for, and some more.
std::vector<CopyBenchShape> DefaultCopyBenchShapes();

struct CopyBenchConfig {
  size_t payload_bytes = size_t{256} << 20;
  int max_cycles = 20;
  double max_seconds = 2.5;  // time limit of one shape; at least three cycles run
  std::vector<CopyBenchShape> shapes = DefaultCopyBenchShapes();
};

// The median, the 10th and the 90th percentile over the cycles. A ratio is the rate of the method,
// divided by the mean rate of two plain copies: the copy before the method and the copy after it.
struct CopyBenchMethod {
  std::string name;
  bool rival = false;  // true: our implementation of a method of another project
  double ratio = 0;
  double p10 = 0;
  double p90 = 0;
};

struct CopyBenchCell {
  CopyBenchShape shape;
  size_t payload_bytes = 0;
  double ceiling = 0;  // median rate of the plain copies, in bytes per second
  double drift = 0;    // (p90 - p10) / median of the ceilings; above kMaxDrift the cell is invalid
  int cycles = 0;
  std::vector<CopyBenchMethod> methods;  // our method is first
  double target = 0;                     // target of our ratio; 0: no target
  std::string chosen;                    // the path that our method chose

  double ours() const { return methods.front().ratio; }
  // The rival with the highest ratio; our method if there is no rival.
  const CopyBenchMethod& best_rival() const;
};
inline constexpr double kMaxDrift = 0.03;
// Our method may be slower than the best rival by this share.
inline constexpr double kRivalMargin = 0.02;

// The target ratio of a shape with this payload; 0: no target.
double CopyBenchTarget(const CopyBenchShape& shape, size_t payload_bytes);

// The bytes of every method are checked once per shape, outside of the measured time. The check
// covers the pools, the guards around them, and the source. Not ok: a shape without bytes, no
// memory, a driver's error, or wrong bytes. For wrong bytes, the message names the method.
Status RunCudaCopyBench(const CudaDevice& device, const CopyBenchConfig& config,
                        const std::function<void(const CopyBenchCell&)>& done);

struct BothWaysResult {
  size_t row_bytes = 0;
  double ceiling = 0;  // sum of the rates of two simultaneous plain copies, in bytes per second
  double ours = 0;     // rate of our method / ceiling
  double batch = 0;    // rate of one batched call in each direction / ceiling
};
Result<std::vector<BothWaysResult>> RunBothWays(const CudaDevice& device, size_t payload_bytes,
                                                int cycles);

// The slowdown of a model's kernels by simultaneous copies.
struct SlowdownResult {
  std::string work;     // "gemm" or "small kernels"
  std::string copies;   // path and fragment size of the copies
  double idle_p50 = 0;  // duration of a kernel alone, in seconds
  double p50 = 0;       // median with copies / median alone
  double p99 = 0;       // 99th percentile with copies / 99th percentile alone
};
Result<std::vector<SlowdownResult>> RunSlowdown(const CudaDevice& device, int launches);

// Answers the open questions of the design by measurements on this machine. Each answer is a line
// that begins with the number of the question. `bytes` is the size of the buffer on the GPU, and of
// the buffer in host memory. The results are meaningful from 256 MiB on.
Status RunCudaQuestions(const CudaDevice& device, size_t bytes,
                        const std::function<void(std::string)>& answer);

}  // namespace kvcast::cuda
