// HttpServer: fixed routes over HTTP/1.1. One thread owns all sockets and waits for none, so that
// idle and slow clients cost a file descriptor and nothing else; handlers run on pool threads.
// Meant for loopback or behind a proxy: it has no TLS and no authentication.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/http/http_message.h"

namespace kvcast::router {

struct HttpRoute {
  enum class Method : uint8_t { kGet, kPost, kDelete };
  // Who waits for whom: a route of kObserver (state, metrics, dumps) runs on a thread of its own
  // and never holds one that queries need.
  enum class Lane : uint8_t { kQuery, kObserver };
  Method method = Method::kGet;
  std::string path;
  // Runs on a pool thread, several at a time.
  std::function<HttpReply(const HttpRequest& request)> handler;
  Lane lane = Lane::kQuery;
};

struct HttpOptions {
  std::string address = "127.0.0.1";  // on loopback, only requests to a loopback host are answered
  int port = 0;                       // 0: any free one
  HttpLimits limits;
  int threads = 4;  // of handlers of lane kQuery
  // Connections beyond leave no trace but a count; the one that has been quiet longest goes first.
  // Never more than the process may open files.
  size_t max_connections = 16384;
  // Of all requests and replies that are held; requests beyond get 503.
  size_t max_held_bytes = 256u << 20;
  int64_t request_timeout_ms = 10000;  // from a request's first byte to its last; then 408
  int64_t write_timeout_ms = 10000;    // without progress
  int64_t pieces_timeout_ms = 60000;   // of a reply in pieces, to its last byte
  int64_t idle_timeout_ms = 60000;     // between requests
  int64_t drain_timeout_ms = 5000;     // of Stop, for requests that have begun
};

struct HttpCounters {
  uint64_t connections = 0;  // open now
  uint64_t accepted = 0;
  uint64_t evicted = 0;        // closed to make room
  uint64_t timed_out = 0;      // requests and replies that took too long
  uint64_t refused_bytes = 0;  // requests over max_held_bytes
  uint64_t held_bytes = 0;     // now
};

class HttpServer {
 public:
  // Serving when it returns. kUnavailable: the address is in use or not of this host.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                   std::vector<HttpRoute> routes);
  ~HttpServer();

  int port() const;
  HttpCounters counters() const;
  // Takes no new connections, answers requests that have begun. May be called twice, by one thread
  // at a time.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
