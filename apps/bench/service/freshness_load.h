// The publishers' process of the freshness benchmark.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/service/bench_freshness.h"
#include "apps/support/forked_process.h"
#include "apps/support/steady_now.h"

namespace kvcast::tools {

inline constexpr int kWarmUpSeconds = 1;

struct Published {
  uint64_t batches = 0;  // those that filled the sources included
  double rate = 0;       // of the others, in batches per second; a burst's of the burst alone
  double burst_end = 0;  // SteadyNow(); 0: there was none
  Quantiles publish;
};

// Fills the sources; writes a LoadEndpoints for each, waits for a byte, publishes and says what
// was Published. Each batch's time stamp is SteadyNow() before publish(). Answers replays until
// `in` ends; the exit code.
int PublishForFreshness(const FreshnessConfig& config, const PipeEnd& in, const PipeEnd& out);

}  // namespace kvcast::tools
