// The benchmark of block copies in host memory. A result is a share of the rate of one contiguous
// copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

struct CopyBenchConfig {
  size_t payload_bytes = size_t{512} << 20;  // payload of each measured copy
  int threads = 1;
  // Size of the pools as a multiple of the payload. With 1, the payload fills the pools, and a read
  // in address order is a contiguous read.
  int spread = 1;
  int cycles = 7;
  std::vector<size_t> fragments = {4096, 8192, 16384, 32768, 65536, 262144, 2097152};
};

// Rates are in bytes per second. All values are medians over the cycles, except the 10th and the
// 90th percentile. A ratio is a rate of one cycle, divided by the mean of two ceilings: the ceiling
// measured before this rate, and the ceiling measured after this rate.
struct CopyBenchCell {
  size_t fragment_bytes = 0;
  double ceiling = 0;  // rate of one contiguous streaming copy with the same number of threads
  double ours = 0;     // ratio of the transfer engine, from random blocks to random slots
  double plain = 0;    // ratio of memcpy for the same copies
  double ours_p10 = 0;
  double ours_p90 = 0;
  double ours_to_plain = 0;  // `ours` of a cycle divided by `plain` of the same cycle
  // Rate of the transfer engine, divided by the rate of one contiguous copy with streaming stores
  // and without prefetch. The copy that gives `ceiling` prefetches and is faster.
  double ours_to_streaming = 0;
};

// The bytes of every cell are verified outside of the measured time. `done` is called after each
// cell. REQUIRES: config.fragments is not empty. Not ok: no memory, wrong bytes, or a payload that
// is smaller than the largest fragment.
Status RunCopyBench(const CopyBenchConfig& config,
                    const std::function<void(const CopyBenchCell&)>& done);

struct PlannerBench {
  size_t copies = 0;
  double seconds_per_copy = 0;
};
// Plans the loads of 4,096 blocks in random order. Each block has 64 layers. Neighbouring layers
// are not adjacent on the GPU, so their copies are not merged.
PlannerBench RunPlannerBench();

// The target ratio of a fragment of this size; 0: no target.
double CopyTarget(size_t fragment_bytes);

}  // namespace kvcast::tools
