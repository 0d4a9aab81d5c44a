// ServiceCore: the state that the HTTP APIs of the router service share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/router/content_key.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/discovery/dns_sources.h"
#include "router/service/discovery/kubernetes_sources.h"
#include "router/service/discovery/source_files.h"
#include "router/service/ingest/fleet.h"
#include "router/service/ingest/source_log.h"
#include "router/service/ingest/source_policy.h"
#include "router/service/join/initial_state.h"
#include "router/service/join/state_sender.h"
#include "router/service/load/load_sharing.h"
#include "router/service/relay/relay.h"
#include "router/service/route/latency.h"
#include "router/service/route/observations.h"
#include "router/service/route/query_engine.h"
#include "router/service/route/request_router.h"
#include "router/service/route/reuse_watch.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// The fleet's threads use `index`, `observations`, `reuse`, `request_router`, `relay`,
// `load_sharing` and `source_log`, so `fleet` is declared after these members.
struct ServiceCore {
  // `ingest_threads`: see RouterOptions.
  explicit ServiceCore(size_t ingest_threads = 1, InitialState initial_state = {})
      : initial(std::move(initial_state)), keys(initial.secret), index(keys, ingest_threads) {}

  const InitialState initial;
  const ContentKeys keys;
  PrefixIndex index;
  Observations observations;
  ReuseWatch reuse;
  std::unique_ptr<RequestRouter> request_router;
  std::unique_ptr<Relay> relay;  // nullptr: no relay
  // Uses `fleet` and `request_router` until LoadSharing::Stop. nullptr: no load is shared.
  std::unique_ptr<LoadSharing> load_sharing;
  Logger* log = nullptr;  // nullptr: no log
  std::unique_ptr<SourceLog> source_log = std::make_unique<SourceLog>();
  std::unique_ptr<Fleet> fleet;
  // Uses `index` and `fleet`; nullptr: the router sends no state.
  std::unique_ptr<StateSender> state_sender;
  std::unique_ptr<SourceFiles> source_files;  // uses `fleet`; nullptr: there are no files
  std::unique_ptr<DnsSources> dns_sources;    // uses `fleet`
  std::unique_ptr<KubernetesSources> kubernetes_sources;  // uses `fleet`
  std::unique_ptr<QueryEngine> queries;
  std::function<double()> now;         // seconds since the Unix epoch
  std::function<int64_t()> steady_ms;  // monotonic
  SourcePolicy policy;
  std::atomic<uint64_t> answered{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<bool> draining{false};
  std::atomic<bool> dumping{false};   // see index_dump.h
  LatencyHistogram latency;           // durations of the queries of Ask and of Route
  LatencyHistogram decision_latency;  // durations of Route

  // Matches the query against the workers of its model and routing group. kNotFound: the query
  // names a model, and no worker has this model and routing group. Other errors: see
  // QueryEngine::Answer. Counts the query and measures its duration.
  Result<std::vector<QueryAnswer>> Ask(const Query& query, const FleetView& view);
  // Chooses a worker. Returns the errors of Ask, and two more. kInvalidArgument: the workers serve
  // several models, and the query names no model. kUnavailable: no worker can be chosen. Counts the
  // decision as one query.
  Result<RouteDecision> Route(const Query& query);
  // Returns how many measurements of the report became samples. kNotFound: the worker is unknown.
  Result<size_t> Take(const LoadRateReport& report);
  // True: this feedback, with earlier feedback, contradicts the blocks of the worker in the index.
  // The service then drops these blocks and learns them again. kNotFound: the request is not
  // booked, or the worker is unknown.
  Result<bool> Take(const Feedback& feedback);
};

// A reply with HTTP status 400, 404, 409, 500 or 503 and the message of `status`.
HttpReply ErrorReply(const Status& status);
inline HttpReply JsonReply(std::string body, int status = 200) {
  return {.status = status, .body = std::move(body)};
}

}  // namespace kvcast::router
