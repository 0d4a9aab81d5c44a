// The router process of the restart benchmark: the router of `kvcast router` with saved state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "apps/bench/service/bench_restart.h"
#include "apps/bench/service/event_load.h"
#include "apps/support/forked_process.h"

namespace kvcast::tools {

enum class RouterCommand : uint8_t {
  // A SourceCount for each source follows. The publishers are stopped. The process waits until it
  // has all batches and has compared the digest of each source. Then it sends queries, and writes a
  // RouterChecked.
  kCheck,
  // A SourceCount for each source follows. The publishers are stopped until the process writes a
  // byte. Then the process sends queries for RestartConfig::query_seconds, and writes a
  // SavesResult.
  kMeasure,
};

// How a router of the benchmark starts.
struct RouterStart {
  bool saves = false;  // true: the router saves its state, and restores it at the start
  int peer_port = 0;   // of the admin listener of the router to join; 0: no router to join
  uint64_t seed = 0;   // of the choice of prompts
};

struct RouterStarted {
  double serves_at = 0;   // SteadyNow() when the service had started, with all restored blocks
  double answers_at = 0;  // SteadyNow() when the router answered exactly for all sources; 0: never
  uint64_t restored = 0;  // number of workers whose state was restored
  int64_t join_bytes = 0;
  double join_seconds = 0;  // see PeerJoinReport
  int admin_port = 0;
};

struct RouterChecked {
  bool complete = false;  // all batches have arrived, and the digests are compared
  uint64_t asked = 0;     // see RestartResult
  uint64_t wrong = 0;
  uint64_t inexact = 0;
  uint64_t dropped = 0;
  uint64_t digest_checks = 0;
  uint64_t digest_mismatches = 0;
};

// Starts a router for the endpoints, writes a RouterStarted to `out`, and obeys the commands on
// `in`. Returns the exit code.
int RunRestartedRouter(const RestartConfig& config, const std::vector<LoadEndpoints>& endpoints,
                       const RouterStart& start, const PipeEnd& in, const PipeEnd& out);

}  // namespace kvcast::tools
