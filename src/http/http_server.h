// HttpServer: fixed routes over HTTP/1.1, with or without TLS. One thread owns all sockets and
// waits for none, so that idle and slow clients cost a file descriptor and nothing else; handlers
// run on pool threads. It has no authentication: meant for loopback or behind a proxy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast {

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  // besides those of every reply
  // Not empty: makes the pieces that follow `body`. The server asks for a piece when the piece
  // before has been sent. An empty piece ends the reply.
  std::function<std::string()> next_piece;
};

// {"error": "<text>"} with this status.
HttpReply HttpError(int status, const std::string& text);

struct HttpRequest {
  std::string method;                          // as sent: "GET", "POST", ...
  std::string path;                            // decoded, without the query
  std::map<std::string, std::string> query;    // decoded; the last of equal names
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool keep_alive = true;
  bool takes_chunks = true;  // HTTP/1.1

  // Empty: not sent.
  std::string_view Header(const std::string& lower_case_name) const;
};

struct HttpRoute {
  enum class Method : uint8_t { kGet, kPost, kDelete };
  // The threads of a route. Routes of kObserver (state, metrics, dumps) share one thread, and use
  // no thread of queries. Routes of kHealth share one thread that no other route uses.
  enum class Lane : uint8_t { kQuery, kObserver, kHealth };
  static constexpr size_t kSmallBody = 64 << 10;
  Method method = Method::kGet;
  std::string path;
  // Runs on a pool thread, several at a time.
  std::function<HttpReply(const HttpRequest& request)> handler;
  Lane lane = Lane::kQuery;
  size_t max_body_bytes = kSmallBody;  // longer: 413, before it is read
};

struct HttpLimits {
  size_t max_head_bytes = 16 << 10;  // request line and headers, or trailers; longer: 431
  size_t max_body_bytes = 16 << 20;  // of any route; longer: 413
};

struct HttpOptions {
  std::string address = "127.0.0.1";  // on loopback, only requests to a loopback host are answered
  int port = 0;                       // 0: any free one
  // PEM files: the certificate with its chain, and its key. Both or none; none: no TLS.
  std::string tls_certificate;
  std::string tls_key;
  HttpLimits limits;
  int threads = 4;  // of handlers of lane kQuery
  // Connections beyond leave no trace but a count; the one that has been quiet longest goes first.
  // Never more than the process may open files.
  size_t max_connections = 16384;
  // Of all requests and replies that are held. Over it the largest unfinished request gets 503, or,
  // where there is none, the one that came last.
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
  uint64_t refused_bytes = 0;  // requests that had to go for max_held_bytes
  uint64_t held_bytes = 0;     // now
};

class HttpServer {
 public:
  // Serving when it returns. kUnavailable: the address is in use or not of this host.
  // kInvalidArgument: options out of range, or certificate and key cannot be used.
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

}  // namespace kvcast
