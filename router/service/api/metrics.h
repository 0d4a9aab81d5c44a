// The metrics page of the router service, in Prometheus text format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "kvcast/router/scheme_detector.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/feed_state.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/relay/relay.h"
#include "router/service/route/latency.h"
#include "router/service/route/request_router.h"
#include "router/service/route/reuse_watch.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// All counters of one worker, read at one time.
struct WorkerMetrics {
  std::string name;
  SourceState state = SourceState::kConnecting;
  SourceStatus stream;
  SourceCounters wire;
  IndexCounters index;
  SchemeVerdict verdict;
  SchemeCounters scheme;
  std::optional<double> event_age_seconds;
  std::vector<GroupSpec> groups;  // by group_idx
  std::vector<GroupTally> tallies;
  WorkerLoad load;
  LoadRatesView load_rates;
  ReuseDiagnosis diagnosis;
  ReuseByKindAndCause reuse;
  FeedCounters feed;
};

struct ServiceMetrics {
  uint64_t queries = 0;
  uint64_t bad_queries = 0;
  HttpCounters http;
  RelayCounters relay;
  RoutingCounters routing;
  const LatencyHistogram* latency = nullptr;  // durations of queries; nullptr: left out
  const LatencyHistogram* decision_latency = nullptr;
  std::vector<WorkerMetrics> workers;
};

// Names start with kvcast_, and counters end in _total. Labels: worker; state; reason; tier, group
// and kind for blocks. An info metric has the hash scheme of a worker as its labels.
std::string RenderMetrics(const ServiceMetrics& metrics);

}  // namespace kvcast::router
