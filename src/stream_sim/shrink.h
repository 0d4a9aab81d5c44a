// Shrinking: finds a small set of faults with which a plan still fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "src/stream_sim/world.h"

namespace kvcast::sim {

// Tries to remove groups of faults: first halves, then quarters, and so on, down to single faults.
// Keeps a removal if the run still fails. Makes at most `max_runs` runs. REQUIRES: the plan fails.
Plan Shrink(const Plan& plan, int max_runs = 300);

// As Shrink, but `fails` decides whether a plan fails.
Plan ShrinkBy(const Plan& plan, const std::function<bool(const Plan&)>& fails, int max_runs = 300);

}  // namespace kvcast::sim
