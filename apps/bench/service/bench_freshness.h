// The freshness benchmark: how long after publish() a query sees a block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/support/samples.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct FreshnessConfig {
  int sources = 64;         // publishers, in one process of their own, over TCP on loopback
  int batches_per_s = 256;  // of each
  int seconds = 10;         // that are measured; one more goes before
  // Of the publishers' process. Elsewhere publishers do not take the router's cores; here they may
  // take what it leaves.
  int publishers_nice = 5;
  int blocks_per_batch = 8;  // half of them stored, 16 tokens each, half removed
  // In the middle, a second of so many times the rate; 1: none.
  int burst = 1;
};

// Times in seconds.
struct Quantiles {
  double p50 = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
};

Quantiles QuantilesOf(const bench::Samples& samples, double seconds_of_one = 1);

// Of queries for prompts that a source holds, in seconds.
struct QueryFigures {
  Quantiles short_prompts;  // of 64 blocks
  Quantiles any_prompts;    // of 1 to 14,000 blocks
  uint64_t asked = 0;
  uint64_t hits = 0;  // of them; the others were removed or not stored yet
};

struct FreshnessResult {
  uint64_t published = 0;
  uint64_t applied = 0;  // what is missing was lost
  uint64_t gaps = 0;     // seen live, and closed or not
  QueryFigures idle;     // before anything is published
  QueryFigures busy;
  // From before publish() to after the index has applied the batch.
  Quantiles visible;
  Quantiles publish;  // what publish() took
  // The rate that was reached, in batches per second of all sources; a burst's, where there is one.
  double rate = 0;
  // From the end of the burst until all that was published by then was applied, in seconds.
  double backlog = 0;
};

// Forks; call it while the process has one thread. Not ok: no sockets, or the other process failed.
Result<FreshnessResult> RunFreshnessBench(const FreshnessConfig& config);

}  // namespace kvcast::tools
