// ServiceCore: what the HTTP APIs of the router service share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/prefix_index.h"
#include "router/service/fleet.h"
#include "router/service/latency.h"
#include "router/service/observations.h"
#include "router/service/query_engine.h"
#include "router/service/relay.h"
#include "router/service/reuse_watch.h"
#include "router/service/routing_desk.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// Members in the order of their use: the fleet's thread feeds the desk and the index.
struct ServiceCore {
  PrefixIndex index;
  Observations observations;
  ReuseWatch reuse;
  std::unique_ptr<RoutingDesk> desk;
  std::unique_ptr<Relay> relay;  // nullptr: none
  std::unique_ptr<Fleet> fleet;
  std::unique_ptr<QueryEngine> queries;
  std::function<double()> now;         // seconds since the epoch
  std::function<int64_t()> steady_ms;  // monotonic
  bool allow_remote = false;           // see RouterOptions
  std::atomic<uint64_t> answered{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<bool> draining{false};
  std::atomic<bool> dumping{false};   // see index_dump.h
  LatencyHistogram latency;           // of Ask
  LatencyHistogram decision_latency;  // of Route

  // Asks the workers of the query's model and routing group. kNotFound: there are none of that
  // model. Counts and times the query.
  Result<std::vector<QueryAnswer>> Ask(const Query& query, const FleetView& view);
  // Chooses a worker. Besides the errors of Ask: kInvalidArgument, the workers serve several models
  // and the query names none; kUnavailable, there is no worker.
  Result<RouteDecision> Route(const Query& query);
  // Of the report's loads those that became samples. kNotFound: no such worker.
  Result<size_t> Take(const LoadRateReport& report);
  // True: this and what was told before refute what is known of the worker, which is learned anew.
  Result<bool> Take(const Feedback& feedback);
};

// Whether to follow it takes RouterOptions::allow_remote.
bool ListensBeyondLoopback(const RouterSource& source);

// 400, 404, 409 or 503 with the status's message.
HttpReply ErrorReply(const Status& status);
inline HttpReply JsonReply(std::string body, int status = 200) {
  return {.status = status, .body = std::move(body)};
}

}  // namespace kvcast::router
