// The service benchmark: routing decisions over HTTP at a fixed rate, while events arrive. The
// first phase has no observers and no attackers. The next phase has observers that read nothing.
// Then each attack has a phase.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/service/bench_freshness.h"
#include "apps/bench/service/event_load.h"
#include "apps/bench/service/http_attacks.h"
#include "apps/bench/service/http_load.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct ServiceBenchConfig {
  EventLoadConfig events;
  double rate = 2000;      // POST /v1/route per second
  int connections = 64;    // connections that are kept alive
  bool by_tokens = false;  // true: requests hold token ids; false: block hashes
  double seconds = 10;     // of each phase, after one second that is not counted
  // Number of observers of each kind. An observer reads nothing. The kinds are HTTP clients of
  // /dump, of /v1/events and of /v1/state, and subscribers of the relay. 0: no phase with
  // observers, and no relay.
  int observers = 0;
  // One phase for each of these attacks.
  std::vector<const HttpAttack*> attacks;
};

// The results of GET /healthz on a new connection, 20 times per second.
struct HealthProbes {
  uint64_t answered = 0;
  uint64_t failed = 0;
  double p99 = 0, max = 0;  // seconds, of the answers that overlap no slow time
};

struct ServicePhase {
  std::string name;  // "alone", "observed" or the name of the attack
  bool attacked = false;
  HttpLoadResult http;
  Quantiles latency;             // of all answered requests
  Quantiles latency_full_speed;  // without the requests that overlap a slow time of the machine
  double slow_share = 0;         // slow times of the machine, divided by the time of the phase
  double lookup_mean = 0;        // of a query in the router, without HTTP and JSON, seconds
  double route_mean = 0;         // of a query and the decision in the router, seconds
  double latency_mean = 0;       // of a request at the client, seconds
  double block_ops_per_s = 0;    // published block operations
  double applied_batches_per_published = 0;
  double router_cores = 0;  // average number of cores that the router kept busy
  double router_mib = 0;    // maximum resident memory of the router, by 20 samples per second
  HealthProbes health;
  HttpAttackTotals sent;  // by the attackers
};

struct ServiceResult {
  std::vector<ServicePhase> phases;
  uint64_t residencies = 0;  // blocks that the workers hold at the end
};

// The function forks, so the process must have one thread. Not ok: no sockets, or a process failed.
Result<ServiceResult> RunServiceBench(const ServiceBenchConfig& config);

}  // namespace kvcast::tools
