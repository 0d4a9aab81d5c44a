// The benchmark of restarts: a router with saved state is killed again and again while its sources
// publish. Then other routers join the running router. The benchmark checks the answers against
// the digests and the known blocks of the publishers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "apps/bench/service/bench_freshness.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct RestartConfig {
  int sources = 64;         // publishers in one separate process; they send over TCP on loopback
  int batches_per_s = 256;  // of each source
  int64_t held_blocks = 100'000;  // of each source
  int kills = 50;                 // SIGKILL
  int joins = 10;                 // routers that join the running router
  int64_t save_period_s = 5;
  int query_seconds = 20;  // duration of the measurement of queries
  // True: the publishers use the extension (KVX1: epochs, digests and snapshots). False: they do
  // not, as the publishers of vLLM.
  bool extension = true;
  int prompts = 200;        // queries after each restart and each join
  int publishers_nice = 5;  // see FreshnessConfig
  int blocks_per_batch = 8;
  std::string folder;  // of the saved state; must be empty or absent
};

// Properties of the saves, and times of queries in seconds.
struct SavesResult {
  uint64_t residencies = 0;
  uint64_t saves = 0;
  int64_t bytes = 0;         // of the latest save
  double seconds = 0;        // of the slowest save
  double pause_seconds = 0;  // of the latest save; see SaveReport
  // Queries between the saves, and queries that overlap a save. Queries that overlap a slow time of
  // the machine do not count.
  Quantiles quiet;
  Quantiles saving;
  double slow_share = 0;  // slow times of the machine, divided by the time of the queries
  uint64_t quiet_queries = 0;
  uint64_t saving_queries = 0;
};

struct RestartResult {
  // From the start of a router until it answers exactly for all sources, in seconds. -1: it did not
  // do so within a minute.
  double cold = 0;      // without saved state
  Quantiles restarted;  // with saved state
  SavesResult saves;
  // Times of the routers that join the running router, in seconds. Without joins: zeros.
  // - arrived: from the first request for the state until all of the state has arrived.
  // - restored_after: from the start of the process until the service has started. At this time,
  //   all blocks are restored.
  // - joined: from the start of the process until the router answers exactly for all sources.
  Quantiles arrived;
  Quantiles restored_after;
  Quantiles joined;
  int64_t join_bytes = 0;  // of the latest join
  uint64_t restored = 0;   // workers whose state was restored, summed over all restarts and joins
  uint64_t dropped = 0;    // saved states that a restarted router had to drop
  uint64_t asked = 0;      // queries after restarts and joins
  uint64_t wrong = 0;      // answers that differ from the blocks of the publishers
  uint64_t inexact = 0;    // correct answers that the router did not mark as exact
  uint64_t digest_checks = 0;
  uint64_t digest_mismatches = 0;
  double rate = 0;  // batches per second of all sources
};

// The function forks, so the process must have one thread. Not ok: no sockets, the folder cannot be
// used, a restarted router does not answer exactly for all sources within a minute, or another
// process failed.
Result<RestartResult> RunRestartBench(const RestartConfig& config);

}  // namespace kvcast::tools
