// An index with a fleet of workers whose caches are full.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/index/churn.h"
#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {

// Group 0: full attention; the others: windows of 1,024 tokens. Blocks of 16 tokens.
WorkerConfig FleetWorker(int64_t groups);
// Registers the workers of `config`.
Status AddFleet(const ChurnConfig& config, PrefixIndex& index);
// Applies all turns before the steady one. Returns the time that Apply took, in seconds.
double FillIndex(const Churn& churn, PrefixIndex& index);
// What the index says of full caches against what it was told. Not ok: something else was measured.
Status CheckFleet(const Churn& churn, const PrefixIndex& index);

}  // namespace kvcast::bench
