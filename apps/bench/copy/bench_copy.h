// The copy benchmark: what share of the memory's speed block copies reach.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

struct CopyBenchConfig {
  size_t payload_bytes = size_t{512} << 20;  // moved by every copy that is timed
  int threads = 1;
  // The blocks that are moved lie in pools this many times as large: at 1 they are the whole pool,
  // and what is read in order of its addresses is read like one piece.
  int spread = 1;
  int cycles = 7;
  std::vector<size_t> fragments = {4096, 8192, 16384, 32768, 65536, 262144, 2097152};
};

// Rates in bytes per second, medians over the cycles. Ratios are taken within a cycle, to the mean
// of the ceilings measured just before and just after.
struct CopyBenchCell {
  size_t fragment_bytes = 0;
  double ceiling = 0;  // one contiguous streaming copy of the payload, same threads
  double ours = 0;     // ratio: the transfer engine, random blocks to random slots
  double plain = 0;    // ratio: the same with memcpy
  double ours_p10 = 0;
  double ours_p90 = 0;
  double ours_to_plain = 0;
  // To one contiguous copy with streaming stores and nothing else; the ceiling asks for memory
  // ahead and is faster than that.
  double ours_to_streaming = 0;
};

// Every cell's bytes are verified, outside of the time. `done` is called after each cell. Not ok:
// no memory, or bytes that did not arrive.
Status RunCopyBench(const CopyBenchConfig& config,
                    const std::function<void(const CopyBenchCell&)>& done);

struct PlannerBench {
  size_t copies = 0;
  double seconds_per_copy = 0;
};
// Plans loads of 4,096 random blocks with 64 layers that lie anywhere, none of them neighbours.
PlannerBench RunPlannerBench();

// Least ratio that a fragment of this size is meant to reach; 0: none is set.
double CopyTarget(size_t fragment_bytes);

}  // namespace kvcast::tools
