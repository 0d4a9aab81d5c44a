// The copy benchmark: the share of the memory's speed that block copies reach.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

struct CopyBenchConfig {
  size_t payload_bytes = size_t{512} << 20;  // payload of every timed copy
  int threads = 1;
  // Size of the pools as a multiple of the payload. At 1 the payload is the whole pool, and a read
  // in address order is a contiguous read.
  int spread = 1;
  int cycles = 7;
  std::vector<size_t> fragments = {4096, 8192, 16384, 32768, 65536, 262144, 2097152};
};

// Rates in bytes per second, medians over the cycles. Ratios are computed within a cycle, to the
// mean of the ceilings measured just before and just after.
struct CopyBenchCell {
  size_t fragment_bytes = 0;
  double ceiling = 0;  // one contiguous streaming copy of the payload with the same threads
  double ours = 0;     // ratio of the transfer engine, random blocks to random slots
  double plain = 0;    // ratio of memcpy for the same copies
  double ours_p10 = 0;
  double ours_p90 = 0;
  double ours_to_plain = 0;
  // Ratio to one contiguous copy with streaming stores only. The ceiling also prefetches and is
  // faster than that copy.
  double ours_to_streaming = 0;
};

// The bytes of every cell are verified outside of the measured time. `done` is called after each
// cell. Not ok: no memory, or wrong bytes.
Status RunCopyBench(const CopyBenchConfig& config,
                    const std::function<void(const CopyBenchCell&)>& done);

struct PlannerBench {
  size_t copies = 0;
  double seconds_per_copy = 0;
};
// Plans loads of 4,096 random blocks with 64 layers at random addresses, none of them adjacent.
PlannerBench RunPlannerBench();

// The target ratio of a fragment of this size; 0: no target.
double CopyTarget(size_t fragment_bytes);

}  // namespace kvcast::tools
