// The benchmark of copies between a GPU and host memory: this library beside what others do, as a
// share of one plain copy of pinned memory in the same run.
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

// What is moved: whole blocks of `rows` rows of `row_bytes`. The rows of a block lie in the GPU
// pool a layer's length apart, in host memory side by side.
struct CopyBenchShape {
  CopyDirection direction = CopyDirection::kLoad;
  size_t row_bytes = 0;
  uint32_t rows = 1;
  BlockOrder order = BlockOrder::kRandom;
  size_t max_blocks = SIZE_MAX;
};
// Those of the table of targets, and some more.
std::vector<CopyBenchShape> DefaultCopyBenchShapes();

struct CopyBenchConfig {
  size_t payload_bytes = size_t{256} << 20;
  int max_cycles = 20;
  double max_seconds = 2.5;  // of one shape, but for at least three cycles
  std::vector<CopyBenchShape> shapes = DefaultCopyBenchShapes();
};

// Medians over the cycles of the ratio to the mean of the plain copies before and behind a cycle.
struct CopyBenchMethod {
  std::string name;
  bool rival = false;
  double ratio = 0;
  double p10 = 0;
  double p90 = 0;
};

struct CopyBenchCell {
  CopyBenchShape shape;
  size_t payload_bytes = 0;
  double ceiling = 0;  // bytes per second
  double drift = 0;    // of the ceiling over the cell; more than kMaxDrift: the cell is void
  int cycles = 0;
  std::vector<CopyBenchMethod> methods;  // ours first
  double target = 0;                     // 0: none
  std::string chosen;                    // path of ours

  double ours() const { return methods.front().ratio; }
  const CopyBenchMethod& best_rival() const;
};
inline constexpr double kMaxDrift = 0.03;
// Ours may be so much below the best rival.
inline constexpr double kRivalMargin = 0.02;

// Least ratio that a shape is meant to reach, where the payload is large; 0: none is set.
double CopyBenchTarget(const CopyBenchShape& shape, size_t payload_bytes);

// Every method's bytes are checked once a shape, with guards around the pools and the source's too,
// outside of the time. Not ok: no room, a driver's error, or bytes that are not where they belong,
// by method.
Status RunCudaCopyBench(const CudaDevice& device, const CopyBenchConfig& config,
                        const std::function<void(const CopyBenchCell&)>& done);

struct BothWaysResult {
  size_t row_bytes = 0;
  double ceiling = 0;  // two plain copies at once, bytes per second of both
  double ours = 0;     // ratio
  double batch = 0;    // ratio of one batched call each way
};
Result<std::vector<BothWaysResult>> RunBothWays(const CudaDevice& device, size_t payload_bytes,
                                                int cycles);

// What a model's kernels suffer from copies beside them.
struct SlowdownResult {
  std::string work;     // "gemm" or "small kernels"
  std::string copies;   // by which path
  double idle_p50 = 0;  // seconds of a kernel alone
  double p50 = 0;       // ratio to alone
  double p99 = 0;       // ratio of the 99th percentiles
};
Result<std::vector<SlowdownResult>> RunSlowdown(const CudaDevice& device, int launches);

// Answers what the design left open about a machine, a line each that begins with the question's
// number. `bytes` on each side are copied from and to; 256 MiB or more say something.
Status RunCudaQuestions(const CudaDevice& device, size_t bytes,
                        const std::function<void(std::string)>& answer);

}  // namespace kvcast::cuda
