// The freshness benchmark: the time from publish() until a query sees the block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/support/samples.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct FreshnessConfig {
  int sources = 64;         // publishers in one separate process; they send over TCP on loopback
  int batches_per_s = 256;  // of each source
  int seconds = 10;         // measured time; a warm-up of one second runs before it
  // The nice value of the publisher process. In production the publishers run on other machines;
  // here they get less CPU time than the router if both need it.
  int publishers_nice = 5;
  int blocks_per_batch = 8;  // half of them stored (16 tokens each), half of them removed
  // Factor of the rate during one additional second in the middle; 1: no burst.
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

// Durations of queries for prompts that a source holds, in seconds.
struct QueryFigures {
  Quantiles short_prompts;  // prompts of 64 blocks
  Quantiles any_prompts;    // prompts of 1 to 14,000 blocks
  uint64_t asked = 0;
  // Queries that found the whole prompt. The prompts of the other queries were removed too early.
  uint64_t hits = 0;
};

struct FreshnessResult {
  uint64_t published = 0;
  uint64_t applied = 0;  // published - applied batches were lost
  uint64_t gaps = 0;     // gaps of the live stream, including those that replay closed
  QueryFigures idle;     // after the fill of the sources, before the load
  QueryFigures busy;     // from the warm-up until the last batch is applied
  // From the call of publish() until the index has applied the batch; without the warm-up.
  Quantiles visible;
  Quantiles visible_full_speed;  // without the batches that overlap a slow time of the machine
  double slow_share = 0;         // slow times of the machine, divided by the measured time
  Quantiles publish;             // duration of publish()
  // The reached rate, in batches per second of all sources; with a burst, only during the burst.
  double rate = 0;
  // Time from the end of the burst until every batch published before was applied, in seconds.
  double backlog = 0;
};

// The function forks, so the process must have one thread. Not ok: no sockets, or the other process
// failed.
Result<FreshnessResult> RunFreshnessBench(const FreshnessConfig& config);

}  // namespace kvcast::tools
