// RouterService: follows publishers, keeps the prefix index and answers over HTTP.
//
//   POST /v1/query   reusable tokens per worker; see query.h
//   POST /v1/feedback  what an engine really had of a promise; see Feedback in query.h
//   GET  /healthz    200 {"status": "ok", "sources": n, "synced": n, "schemes_matched": n}
//   GET  /metrics    Prometheus text
// Errors: 400 for a bad query, 404, 413 for a body over the limit; the body is {"error": text}.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kvcast/status.h"
#include "kvcast/subscriber.h"
#include "router/service/http_server.h"
#include "router/service/source.h"

namespace kvcast::router {

struct RouterOptions {
  std::vector<RouterSource> sources;
  HttpOptions http;
  SubscriberConfig subscriber;
  // Seconds since the epoch, to tell the age of events; empty: the system's clock.
  std::function<double()> now;
};

// Own threads: the subscriber's and the HTTP pool.
class RouterService {
 public:
  // Not ok: a source that cannot be followed (the message names it), two of one name, or an address
  // that cannot be listened on. Nothing runs then.
  static Result<std::unique_ptr<RouterService>> Start(const RouterOptions& options);
  ~RouterService();

  int http_port() const;
  // Ends all threads. May be called twice.
  void Stop();

 private:
  class Impl;
  explicit RouterService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
