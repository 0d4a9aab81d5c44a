// The freshness benchmark: the time from publish() until a query sees the published block.
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
  // The nice value of the publisher process. In production the publishers run on other machines. In
  // the benchmark, the nice value gives the router more CPU time than the publishers.
  int publishers_nice = 5;
  int blocks_per_batch = 8;  // half of them stored (16 tokens each), half of them removed
  // The rate during the burst, as a multiple of batches_per_s. The burst lasts one additional
  // second, in the middle of the measured time. 1: no burst.
  int burst = 1;
};

// Times in seconds.
struct Quantiles {
  double p50 = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
};

// `seconds_of_one`: the unit of the samples, in seconds.
Quantiles QuantilesOf(const bench::Samples& samples, double seconds_of_one = 1);

// Durations of queries for prompts that a source holds, in seconds.
struct QueryFigures {
  Quantiles short_prompts;  // prompts of 64 blocks
  Quantiles any_prompts;    // prompts of 1 to 14,000 blocks
  uint64_t asked = 0;
  // Queries that found the whole prompt. For the other queries, the source had already removed
  // blocks of the prompt.
  uint64_t hits = 0;
};

struct FreshnessResult {
  uint64_t published = 0;  // batches
  uint64_t applied = 0;    // batches that the index applied; the other published batches were lost
  uint64_t gaps = 0;       // gaps of the live stream, including those that replay closed
  QueryFigures idle;       // after the fill of the sources, before the load
  QueryFigures busy;       // from the warm-up until the last batch is applied
  // From the call of publish() until the index has applied the batch; without the warm-up.
  Quantiles visible;
  Quantiles visible_full_speed;  // without the batches that overlap a slow time of the machine
  double slow_share = 0;         // slow times of the machine, divided by the measured time
  Quantiles publish;             // duration of publish()
  // The reached rate, in batches per second of all sources; with a burst, only during the burst.
  double rate = 0;
  // Time from the end of the burst until all batches of the burst were applied, in seconds. 0: no
  // burst.
  double backlog = 0;
};

// The function forks, so the process must have one thread. Not ok: no sockets, or the publisher
// process failed.
Result<FreshnessResult> RunFreshnessBench(const FreshnessConfig& config);

}  // namespace kvcast::tools
