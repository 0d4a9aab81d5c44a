// The metrics page of the router service, in Prometheus text format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "kvcast/router/scheme_detector.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/discovery/source_list_report.h"
#include "router/service/ingest/feed_state.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/metrics/peer_join_metrics.h"
#include "router/service/metrics/peer_load_metrics.h"
#include "router/service/relay/relay.h"
#include "router/service/route/latency.h"
#include "router/service/route/request_router.h"
#include "router/service/route/reuse_watch.h"
#include "router/service/state/router_state.h"
#include "src/base/logger.h"
#include "src/event_log/bridge_status.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// The values of one worker on the metrics page.
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
  std::vector<uint64_t> rejects;  // see PrefixIndex::GroupRejects
  FeedCounters feed;
  std::optional<event_log::BridgeStatus> log;  // nullopt: the events are not in a log
  bool insecure = false;                       // see WorkerRegistration
};

// The sums of the counters of several HTTP servers.
struct HttpTotals {
  HttpCounters counters;
  HttpRequestCounts requests;

  void Add(const HttpCounters& more, const HttpRequestCounts& more_requests);
};

struct ServiceMetrics {
  LogCounters log;  // zeros without a log
  uint64_t queries = 0;
  uint64_t bad_queries = 0;
  HttpTotals http;
  RelayCounters relay;
  RoutingCounters routing;
  const LatencyHistogram* latency = nullptr;  // durations of queries; nullptr: not shown
  const LatencyHistogram* decision_latency = nullptr;
  std::vector<WorkerMetrics> workers;
  std::vector<SourceListReport> source_files;
  std::vector<SourceListReport> dns_sources;
  std::vector<SourceListReport> kubernetes_sources;
  std::optional<StateReport> state;  // nullopt: no state is saved
  PeerJoinMetrics join;
  std::optional<PeerLoadMetrics> peer_load;  // nullopt: no load is shared
};

// Metric names start with kvcast_. Metrics that every process can have start with process_. Names
// of counters end in _total. Metrics of a worker have the label worker. Metrics of blocks also have
// tier, group and kind. An info metric always has the value 1, and its labels are the information.
std::string RenderMetrics(const ServiceMetrics& metrics);

}  // namespace kvcast::router
