// RouterService: follows publishers, keeps the prefix index and answers over HTTP. The routes are
// those of own_api.h and field_api.h, and GET /openapi.json describes them. Errors are {"error":
// text}: 400 for a bad request, 404 for an unknown path, worker, model or request, 405, 409 for a
// name that is taken, 413 for a body over the limit, 503 while there is no worker or no room.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/http/http_server.h"
#include "router/service/ingest/fleet.h"
#include "router/service/ingest/source.h"
#include "router/service/relay/relay.h"
#include "router/service/route/routing_desk.h"

namespace kvcast::router {

struct RouterOptions {
  std::vector<RouterSource> sources;
  HttpOptions http;
  SubscriberConfig subscriber;
  RoutingConfig routing;
  RelayConfig relay;
  // Sees each batch of each worker after it was applied; see FleetObserver. Empty: none.
  std::function<void(const FleetWorker&, const AppliedBatch&)> on_applied;
  // Listen beyond loopback, where anybody can read prompts and register workers: there is neither
  // encryption nor authentication.
  bool allow_remote = false;
  // Seconds since the epoch, to tell the age of events; empty: the system's clock.
  std::function<double()> now;
  // Evenly from [0, 1), for decisions with a temperature; empty: seeded by the system.
  std::function<double()> random;
};

// What the service knows of a worker's stream.
struct WorkerReport {
  std::string name;
  SourceStatus stream;
  SourceState state = SourceState::kConnecting;  // see Source::State
  SchemeVerdict scheme;
  SourceCounters counters;
};

// Own threads: the subscriber's, the HTTP server's and its handlers'.
class RouterService {
 public:
  // Not ok: a source that cannot be followed (the message names it), two of one name, or an address
  // (a bound source's too) that cannot be listened on, or is not loopback without allow_remote.
  // Nothing runs then.
  static Result<std::unique_ptr<RouterService>> Start(const RouterOptions& options);
  ~RouterService();

  int http_port() const;
  std::string relay_endpoint() const;  // as bound; empty: none
  // As POST /v1/route and /v1/feedback, without HTTP. Thread-safe.
  Result<RouteDecision> Route(const Query& query);
  Status TakeFeedback(const Feedback& feedback);
  // In order of registration. Thread-safe.
  std::vector<WorkerReport> workers() const;
  // Answers what has begun, then ends all threads. May be called twice.
  void Stop();

 private:
  class Impl;
  explicit RouterService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
