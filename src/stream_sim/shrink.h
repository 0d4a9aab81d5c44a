// Shrinking: the fewest faults with which a plan still fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "src/stream_sim/world.h"

namespace kvcast::sim {

// REQUIRES: the plan fails. Drops halves, quarters and single faults as long as the run goes on
// failing; at most `max_runs` runs.
Plan Shrink(const Plan& plan, int max_runs = 300);

// The same for whatever `fails` says.
Plan ShrinkBy(const Plan& plan, const std::function<bool(const Plan&)>& fails, int max_runs = 300);

}  // namespace kvcast::sim
