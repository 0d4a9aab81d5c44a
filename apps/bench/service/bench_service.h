// The service benchmark: routing decisions over HTTP at a fixed rate, beside events, with and
// without observers that do not read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "apps/bench/service/event_load.h"
#include "apps/bench/service/http_load.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct ServiceBenchConfig {
  EventLoadConfig events;
  double rate = 2000;      // POST /v1/route a second
  int connections = 64;    // kept alive
  bool by_tokens = false;  // the prompts' tokens; else their block hashes
  double seconds = 10;     // of each phase, behind a second that is not counted
  // Of each kind: clients that ask for a dump, for events and for the state and do not read, and
  // subscribers of the relay that do not. 0: one phase, without them and without a relay.
  int observers = 0;
};

struct ServicePhase {
  bool observed = false;
  HttpLoadResult http;
  double p50 = 0, p99 = 0, p999 = 0, max = 0;  // seconds
  double lookup_mean = 0;      // of a query in the router, without HTTP and JSON, seconds
  double route_mean = 0;       // the same with the decision
  double latency_mean = 0;     // of what the client sees, seconds
  double block_ops_per_s = 0;  // published
  double applied_batches_per_published = 0;
  double router_cores = 0;  // processors that were busy with it
  double router_mib = 0;    // resident at the end
};

struct ServiceResult {
  std::vector<ServicePhase> phases;
  uint64_t residencies = 0;
};

// Forks; call it while the process has one thread. Not ok: no sockets, or a process failed.
Result<ServiceResult> RunServiceBench(const ServiceBenchConfig& config);

}  // namespace kvcast::tools
