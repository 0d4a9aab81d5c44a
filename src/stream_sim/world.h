// World: publishers, a network and one index that follows all publishers, in one thread. Some
// publishers have a relay, and a router behind the relay. The clock jumps from event to event. The
// seed and the faults determine the whole run.
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

// Returns the plan of the seed.
Plan DrawPlan(uint64_t seed);
// Runs the plan. The result is deterministic.
Record RunPlan(const Plan& plan);

}  // namespace kvcast::sim
