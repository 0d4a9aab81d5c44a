// The publisher process of the freshness benchmark.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/service/bench_freshness.h"
#include "apps/support/forked_process.h"
#include "apps/support/steady_now.h"

namespace kvcast::tools {

inline constexpr int kWarmUpSeconds = 1;

struct Published {
  uint64_t batches = 0;  // includes the batches that filled the sources
  double rate = 0;       // batches per second without the fill; with a burst, only of the burst
  double burst_end = 0;  // SteadyNow() at the end of the burst; 0: no burst
  Quantiles publish;     // duration of publish() without the fill, in seconds
};

// Fills the sources, writes a LoadEndpoints for each to `out`, waits for a byte on `in`, publishes,
// and writes a Published to `out`. The time stamp of each batch is SteadyNow() before publish().
// Replay requests are answered until `in` is closed, but at most kPipeTimeoutMs after the
// Published is written. Returns the exit code.
int PublishForFreshness(const FreshnessConfig& config, const PipeEnd& in, const PipeEnd& out);

}  // namespace kvcast::tools
