// The service's own API.
//
//   POST   /v1/query       reusable tokens per worker; see query.h
//   POST   /v1/route       the worker that should take the prompt, and why; see request_router.h
//   POST   /v1/feedback    reports on routed requests and queues; see feedback.h
//   POST   /v1/load_rates  reports on the loads of a worker from lower tiers; see load_rates.h
//   GET    /v1/sources     the followed sources
//   POST   /v1/sources     adds a source; see source_json.h
//   DELETE /v1/sources     ?name= removes a source
//   GET    /v1/state       workers, their streams, groups and load, and counters of queries
//   GET    /v1/events, /v1/decisions, /v1/history   recent history; see observations.h
//   POST   /v1/events      ?worker= takes events that an engine pushes; see event_feeds.h
//   GET    /healthz        200 while the process serves requests
//   GET    /readyz         503 while a source is connecting or in bootstrap, while there are
//                          lists of sources (files, DNS, Kubernetes) but no source, and while
//                          the service stops; else 200. The body lists degraded sources.
//   GET    /metrics        Prometheus text
//
// Only the admin listener answers this request:
//   GET    /v1/admin/state  the state of this router, for another router that starts; see
//                           state_stream.h
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "router/service/metrics/metrics.h"
#include "router/service/route/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// `core` must outlive the routes. `http` returns the counters of all HTTP servers together.
std::vector<HttpRoute> OwnRoutes(ServiceCore& core, std::function<HttpTotals()> http);

// `core` must have a sender, and must outlive the route.
HttpRoute StateRoute(ServiceCore& core);

}  // namespace kvcast::router
