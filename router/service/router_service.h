// RouterService: follows publishers, keeps the prefix index and answers over HTTP. The routes are
// those of own_api.h, indexer_api.h and static_files.h; GET /openapi.json describes them. Errors
// are
// {"error": text}. 400: a bad request. 401: a token is needed. 403: a host or an origin that is not
// allowed, or a token whose role does not allow the request. 404: an
// unknown path, worker, model or request. 405: a wrong method. 408: a request that is not complete
// in time. 409: a name that is taken, or events pushed to a worker whose endpoint is not "push".
// 413: a body over the limit. 431: a request line or headers over the limit. 500: an internal
// error. 503: no worker can be chosen, an endpoint cannot be bound, memory is short, or another
// dump runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/fleet.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/relay/relay.h"
#include "router/service/route/request_router.h"
#include "src/base/logger.h"
#include "src/http/http_server.h"
#include "src/http/ip_network.h"

namespace kvcast::router {

struct RouterOptions {
  std::vector<WorkerRegistration> sources;
  HttpOptions http;
  // A second address. Routes with the access kAdmin (registrations, removals, pushed events, dumps)
  // are answered only there, and all other routes too. Only address, port and unix_path are used;
  // the other members are those of `http`, without TLS for a unix socket. nullopt: `http` answers
  // all routes.
  std::optional<HttpOptions> admin_http;
  // See SourcePolicy and FleetLimits.
  std::vector<IpNetwork> source_networks;
  FleetLimits source_limits;
  SubscriberConfig subscriber;
  // Number of threads that follow publishers and apply their events, from 1 to kMaxIndexShards. The
  // index has one shard for each thread; prefix_index.h describes the cost of a shard.
  size_t ingest_threads = 1;
  RoutingConfig routing;
  RelayConfig relay;
  // Called for each applied batch of each worker. Calls for different workers may run at the same
  // time; see FleetObserver. Empty: no function is called.
  std::function<void(const FleetWorker&, const AppliedBatch&)> on_applied;
  // Allows listeners beyond loopback. Without tokens, any client that can reach the HTTP address
  // can read prompts and register workers; without a certificate, HTTP is not encrypted. The relay
  // and sources beyond loopback need CURVE in any case, or `insecure` of the source.
  bool allow_remote = false;
  // Path of the router's secret CURVE key (CurveKeyPair::Load). It is the key of the subscriber for
  // sources with a server_key, and the server key of the relay. Empty: no CURVE.
  std::string curve_key;
  // Path of the list of the relay's clients (AccessList). Empty: the relay has no CURVE, and must
  // be on loopback.
  std::string curve_clients;
  // Returns seconds since the Unix epoch, for the age of events; empty: the system's clock.
  std::function<double()> now;
  // Gets the events of docs/logging.md. It must outlive the service. nullptr: no log.
  Logger* log = nullptr;
  // Returns evenly distributed numbers from [0, 1), for decisions with a temperature; empty: a
  // generator seeded by the system.
  std::function<double()> random;
};

// The state of one worker's stream.
struct WorkerReport {
  std::string name;
  SourceStatus stream;
  SourceState state = SourceState::kConnecting;  // see WorkerIngest::State
  SchemeVerdict scheme;
  SourceCounters counters;
  bool insecure = false;  // see WorkerRegistration
};

// Owns the threads of the subscriber, of the HTTP server and of its handlers.
class RouterService {
 public:
  // Not ok in nine cases: ingest_threads is out of range; options.subscriber is invalid; a source
  // cannot be followed (the message names the source); two sources have the same name; there are
  // more sources than source_limits; an address cannot be bound; options.http is invalid, or its
  // certificate, key or token file cannot be used; an address to listen on (also that of a bound
  // source) is not loopback and allow_remote is false; a source or the relay lacks the keys that it
  // needs. No threads run after an error.
  static Result<std::unique_ptr<RouterService>> Start(const RouterOptions& options);
  ~RouterService();

  int http_port() const;
  int admin_port() const;              // 0: no admin_http, or a unix socket
  std::string relay_endpoint() const;  // as bound; empty: no relay
  RelayCounters relay_counters() const;
  // Like POST /v1/route and /v1/feedback, without HTTP. Thread-safe.
  Result<RouteDecision> Route(const Query& query);
  Status TakeFeedback(const Feedback& feedback);
  // The workers in order of registration. Thread-safe.
  std::vector<WorkerReport> workers() const;
  // Completes the requests in progress, then ends all threads except the relay's thread, which the
  // destructor ends. May be called twice. Route, TakeFeedback and workers must not be called after
  // Stop.
  void Stop();

 private:
  class Impl;
  explicit RouterService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
