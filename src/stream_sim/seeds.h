// Runs the simulation with many seeds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/stream_sim/violation.h"
#include "src/stream_sim/world.h"

namespace kvcast::sim {

struct SeedsResult {
  uint64_t seeds = 0;  // number of seeds that were run
  uint64_t failed = 0;
  std::optional<uint64_t> first_failed;  // the lowest failed seed
  Record total;                          // with the violations of first_failed only
};

// Runs the seeds `first` to `last` on `threads` threads. Ends early after `max_failed` failures.
SeedsResult RunSeeds(uint64_t first, uint64_t last, int threads, uint64_t max_failed = 1);

}  // namespace kvcast::sim
