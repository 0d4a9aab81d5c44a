// The service's own API.
//
//   POST   /v1/query     reusable tokens per worker; see query.h
//   POST   /v1/route     the worker that should take the prompt, and why; see routing_desk.h
//   POST   /v1/feedback  what became of a routed request; see routing_desk.h
//   POST   /v1/load_rates  how fast a worker loads from its lower tiers; see load_rates.h
//   GET    /v1/sources   what is followed; POST adds one (source_json.h), DELETE ?name= removes it
//   GET    /v1/state     workers, their streams, groups and load, and what was answered
//   GET    /v1/events, /v1/decisions, /v1/history   what happened lately; see observations.h
//   GET    /healthz      200 as long as the process serves
//   GET    /readyz       200 if every source is synced or says itself degraded, else 503
//   GET    /metrics      Prometheus text
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "router/service/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// `core` must outlive the routes. `http`: counters of the server that has them.
std::vector<HttpRoute> OwnRoutes(ServiceCore& core, std::function<HttpCounters()> http);

}  // namespace kvcast::router
