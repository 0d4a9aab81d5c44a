// RouterService: follows publishers, keeps the prefix index and answers over HTTP. own_api.h,
// indexer_api.h and static_files.h list the routes, and GET /openapi.json describes the routes for
// clients. Errors are {"error": text}. 400: a bad request. 401: a token is needed. 403: a host or
// an origin that is not allowed, or a token whose role does not allow the request. 404: an unknown
// path, worker, model or request. 405: a wrong method. 408: a request that is not complete in time.
// 409: a name that is taken, or events pushed to a worker whose endpoint is not "push". 413: a body
// over the limit. 431: a request line or headers over the limit. 500: an internal error. 503: no
// worker can be chosen, there are too many sources (source_limits), an endpoint cannot be bound,
// the held requests have too many bytes (HttpOptions::max_held_bytes), another dump runs, or the
// state is being sent to another router.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/discovery/dns_source.h"
#include "router/service/discovery/http_client.h"
#include "router/service/discovery/kubernetes_source.h"
#include "router/service/discovery/source_set.h"
#include "router/service/ingest/fleet.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/join/peer_options.h"
#include "router/service/load/load_sharing.h"
#include "router/service/relay/relay.h"
#include "router/service/route/request_router.h"
#include "router/service/state/router_state.h"
#include "src/base/logger.h"
#include "src/http/http_server.h"
#include "src/http/ip_network.h"

namespace kvcast::router {

struct RouterOptions {
  std::vector<WorkerRegistration> sources;
  // Paths of files with more sources; see SourceFiles and SourcesFromText. The service reads a
  // changed file within about one second.
  std::vector<std::string> source_files;
  // Names whose targets are sources too; see DnsSources. Each `lookup` occurs once.
  std::vector<DnsSource> dns_sources;
  std::string dns_server;  // see DnsClient::Create
  // EndpointSlices whose endpoints are sources too; see KubernetesSources. Each
  // KubernetesSource::list() occurs once. These sources need make_client.
  std::vector<KubernetesSource> kubernetes_sources;
  KubernetesApi kubernetes;
  MakeHttpClient make_client;
  // For the sources of source_files, dns_sources and kubernetes_sources.
  SourceDefaults source_defaults;
  HttpOptions http;
  // A second address. If it is set, only this address answers the routes with access kAdmin
  // (registrations, removals, pushed events, dumps), and only this address sends the state of the
  // router to another router (GET /v1/admin/state). This address also answers all other routes.
  // Only the members `address`, `port` and `unix_path` are used. All other members are those of
  // `http`, with three exceptions: `threads` is 1, `max_connections` is at most 256, and a unix
  // socket has no TLS. nullopt: `http` answers all routes except GET /v1/admin/state.
  std::optional<HttpOptions> admin_http;
  // See SourcePolicy and FleetLimits.
  std::vector<IpNetwork> source_networks;
  FleetLimits source_limits;
  SubscriberConfig subscriber;
  // Number of threads that follow publishers and apply their events, at most kMaxIndexShards. The
  // index has one shard for each thread; prefix_index.h describes the cost of a shard. 0: see
  // IngestThreadsFor.
  size_t ingest_threads = 0;
  RoutingConfig routing;
  RelayConfig relay;
  // The exchange of loads with other routers. `name` empty: a random name. The service sets
  // `epoch`, `curve_keys` and `now_us`.
  LoadSharingConfig load;
  StateOptions state;
  // Another router. When this router starts, it takes the state of the other router; see
  // OpenInitialState. A peer with a URL needs make_client.
  PeerOptions peer;
  // Reads the logs of the sources with endpoints nats:MODEL/WORKER. Empty: such a source is an
  // error. It is called by one thread at a time, until the service is stopped.
  OpenEventLog open_log;
  // Called for each applied batch of each worker. Calls for different workers may run at the same
  // time; see FleetObserver. Empty: no function is called.
  std::function<void(const FleetWorker&, const AppliedBatch&)> on_applied;
  // Allows listeners beyond loopback. Without tokens, any client that can reach the HTTP address
  // can read prompts and register workers; without a certificate, HTTP is not encrypted. Beyond
  // loopback, the relay, the load endpoint and its peers always need CURVE, and a source needs
  // CURVE or `insecure`.
  bool allow_remote = false;
  // Path of the router's secret CURVE key (CurveKeyPair::Load). It is the key of the subscriber for
  // sources and load peers with a server_key, and the server key of the relay and of the load
  // endpoint. Empty: no CURVE.
  std::string curve_key;
  // Path of the list of the clients of the relay and of the load endpoint (AccessList). Empty: the
  // relay and the load endpoint have no CURVE, and must be on loopback.
  std::string curve_clients;
  // Returns seconds since the Unix epoch, for the age of events. Empty: the system's clock is used.
  std::function<double()> now;
  // Gets the events of docs/logging.md. It must outlive the service. nullptr: no log.
  Logger* log = nullptr;
  // Returns evenly distributed numbers from [0, 1), for decisions with a temperature; empty: a
  // generator seeded by the system.
  std::function<double()> random;
};

// The number of ingestion threads for a machine: one for each 8 cores, from 1 to 4. More threads
// are seldom useful: one thread follows dozens of busy engines, and each thread makes queries
// slower. `cores` 0: unknown.
size_t IngestThreadsFor(unsigned cores);

// The state of one worker's stream.
struct WorkerReport {
  std::string name;
  SourceStatus stream;
  SourceState state = SourceState::kConnecting;  // see WorkerIngest::State
  SchemeVerdict scheme;
  SourceCounters counters;
  bool insecure = false;  // see WorkerRegistration
};

// The answer of one worker to a query.
struct WorkerAnswer {
  QueryAnswer answer;
  std::string instance;  // see WorkerRegistration; the name of the worker if it has no instance
  int64_t data_parallel_rank = 0;
};

// Owns the threads of the subscribers, of the HTTP servers and of their handlers.
class RouterService {
 public:
  // Not ok in these cases (no threads run after an error):
  // - ingest_threads is out of range, or options.subscriber is invalid.
  // - A source cannot be followed. The message names the source.
  // - Two sources have the same name, or there are more sources than source_limits allows.
  // - An address cannot be bound.
  // - options.http is invalid, or its certificate, key or token file cannot be used.
  // - An address to listen on, also of a source with `bind`, is not loopback, and allow_remote is
  //   false.
  // - A source, the relay, the load endpoint or a load peer lacks keys that it needs.
  // - curve_key, curve_clients or dns_server cannot be used, or curve_clients is without curve_key.
  // - `load` is invalid.
  // - There are kubernetes_sources without make_client.
  // - The folder of the saved state cannot be used; see StateFolder::Open.
  // - `peer` is invalid, or there is no make_client for it.
  // Blocks until the state of `peer` has arrived, or until it cannot arrive in time.
  static Result<std::unique_ptr<RouterService>> Start(const RouterOptions& options);
  ~RouterService();

  size_t ingest_threads() const;
  int http_port() const;
  int admin_port() const;              // 0: no admin_http, or a unix socket
  std::string relay_endpoint() const;  // as bound; empty: no relay
  RelayCounters relay_counters() const;
  std::string load_endpoint() const;  // as bound; empty: the load is not published
  LoadSharingCounters load_counters() const;
  // Like POST /v1/query, /v1/route and /v1/feedback, without HTTP. Thread-safe.
  Result<std::vector<WorkerAnswer>> Ask(const Query& query);
  Result<RouteDecision> Route(const Query& query);
  Status TakeFeedback(const Feedback& feedback);
  // Follows the `sources`, `dns_sources` and `kubernetes_sources` of these options instead of those
  // of Start or of the previous Reload. Other members have no effect. Sources of files and of
  // clients do not change. Returns the changes of `sources`. A source of `sources` that cannot be
  // followed is tried again once per second; see ConfiguredSources. Error: two sources have the
  // same name, or there are kubernetes_sources without make_client; nothing changes. One call at a
  // time.
  Result<SourceSet::Changes> Reload(const RouterOptions& options);
  // The workers in order of registration. Thread-safe.
  std::vector<WorkerReport> workers() const;
  // Completes the requests in progress, then ends all threads except the relay's thread, which the
  // destructor ends. May be called twice. Ask, Route, TakeFeedback, Reload and workers must not be
  // called after Stop.
  void Stop();

 private:
  class Impl;
  explicit RouterService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
