// Functions that fill an index with a fleet of workers, until the caches of all workers are full.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/index/churn.h"
#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {

// Group 0 is full attention. The other groups have windows of 1,024 tokens. A block has
// kBlockTokens tokens.
WorkerConfig FleetWorker(int64_t groups);
// Registers the workers of `config`.
Status AddFleet(const ChurnConfig& config, PrefixIndex& index);
// Applies all turns before churn.steady_turn(). Returns the total time of Apply, in seconds.
double FillIndex(const Churn& churn, PrefixIndex& index);
// Checks that the counters of an index with full caches have the expected values. Not ok: a value
// differs, so the measurement is invalid.
Status CheckFleet(const Churn& churn, const PrefixIndex& index);

}  // namespace kvcast::bench
