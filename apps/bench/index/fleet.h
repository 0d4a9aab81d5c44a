// An index with a fleet of workers whose caches are full.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/index/churn.h"
#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {

// Group 0 is full attention; the other groups have windows of 1,024 tokens. Blocks of 16 tokens.
WorkerConfig FleetWorker(int64_t groups);
// Registers the workers of `config`.
Status AddFleet(const ChurnConfig& config, PrefixIndex& index);
// Applies all turns before the steady turn. Returns the time in Apply, in seconds.
double FillIndex(const Churn& churn, PrefixIndex& index);
// Compares the counters of an index with full caches with the expected numbers. Not ok: they
// differ, so the measurement is invalid.
Status CheckFleet(const Churn& churn, const PrefixIndex& index);

}  // namespace kvcast::bench
