// World: publishers, a network and one index that follows them all, in one thread, on a clock that
// jumps from event to event. Everything that happens follows from the seed and the faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "src/stream_sim/fault.h"
#include "src/stream_sim/violation.h"

namespace kvcast::sim {

struct Plan {
  uint64_t seed = 0;
  std::vector<Fault> faults;
};

// What the seed stands for.
Plan DrawPlan(uint64_t seed);
// Deterministic.
Record RunPlan(const Plan& plan);

}  // namespace kvcast::sim
