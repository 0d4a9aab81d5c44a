// The freshness benchmark: how long after publish() a query sees a block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kvcast/status.h"

namespace kvcast::tools {

struct FreshnessConfig {
  int sources = 64;         // publishers, in one process of their own, over TCP on loopback
  int batches_per_s = 256;  // of each
  int seconds = 10;         // that are measured; one more goes before
  // Of the publishers' process. Elsewhere publishers do not take the router's cores; here they may
  // take what it leaves.
  int publishers_nice = 5;
  int blocks_per_batch = 8;  // half of them stored, 16 tokens each, half removed
};

// Times in seconds.
struct Quantiles {
  double p50 = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
};

struct FreshnessResult {
  uint64_t published = 0;
  uint64_t applied = 0;  // what is missing was lost
  uint64_t gaps = 0;     // seen live, and closed or not
  uint64_t queries = 0;
  // From before publish() to after the index has applied the batch.
  Quantiles visible;
  Quantiles publish;  // what publish() took
  // The rate that was reached, in batches per second of all sources.
  double rate = 0;
};

// Forks; call it while the process has one thread. Not ok: no sockets, or the other process failed.
Result<FreshnessResult> RunFreshnessBench(const FreshnessConfig& config);

}  // namespace kvcast::tools
