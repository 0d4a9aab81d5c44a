// The metrics page of the router service, in Prometheus text format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvcast/prefix_index.h"
#include "kvcast/scheme_detector.h"
#include "kvcast/subscriber.h"
#include "router/service/feed_state.h"
#include "router/service/latency.h"
#include "router/service/load_rates.h"
#include "router/service/relay.h"
#include "router/service/reuse_watch.h"
#include "router/service/routing_desk.h"
#include "router/service/source.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// All counters of one worker at one time.
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
  const LatencyHistogram* latency = nullptr;  // of queries; nullptr: left out
  const LatencyHistogram* decision_latency = nullptr;
  std::vector<WorkerMetrics> workers;
};

// Names start with kvcast_, counters end in _total. Labels: worker, state and reason; tier, group
// and kind of blocks; the scheme that was found is the labels of an info metric.
std::string RenderMetrics(const ServiceMetrics& metrics);

}  // namespace kvcast::router
