// Runs of many seeds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/stream_sim/violation.h"
#include "src/stream_sim/world.h"

namespace kvcast::sim {

struct SeedsResult {
  uint64_t seeds = 0;  // run
  uint64_t failed = 0;
  std::optional<uint64_t> first_failed;  // the lowest that was seen to fail
  Record total;                          // violations: those of first_failed
};

// The seeds first to last on `threads` threads; ends early after `max_failed` failures.
SeedsResult RunSeeds(uint64_t first, uint64_t last, int threads, uint64_t max_failed = 1);

}  // namespace kvcast::sim
