// HttpServer: fixed routes over HTTP/1.1, with or without TLS. One thread owns all sockets and
// never blocks on a socket, so that an idle or slow client costs only a file descriptor. Handlers
// run on pool threads. A server without tokens answers every client that reaches it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/core/status.h"
#include "src/http/access_tokens.h"

namespace kvcast {

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  // Headers in addition to the headers that every reply has.
  std::vector<std::pair<std::string, std::string>> headers;
  // Not empty: returns the pieces that follow `body`. The server calls the function when the
  // previous piece has been sent. An empty piece ends the reply.
  std::function<std::string()> next_piece;
};

// Returns a reply with this status and the body {"error": "<text>"}.
HttpReply HttpError(int status, const std::string& text);

struct HttpRequest {
  std::string method;                          // as sent: "GET", "POST", ...
  std::string path;                            // decoded, without the query
  std::map<std::string, std::string> query;    // decoded; for equal names the last value
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool keep_alive = true;
  bool takes_chunks = true;  // HTTP/1.1
  std::string peer;          // see HttpAnswer
  // When the last byte was received, in microseconds of SteadyUs.
  int64_t received_us = std::numeric_limits<int64_t>::max();
  // The role of the request's token. nullopt: the server has no tokens, or the route needs no
  // token.
  std::optional<AccessRole> role;

  // The value of the header. Empty: the request does not have the header.
  std::string_view Header(const std::string& lower_case_name) const;
};

struct HttpRoute {
  enum class Method : uint8_t { kGet, kPost, kDelete };
  // The threads of a route. Each lane has its own threads. The lanes kObserver (state, metrics,
  // dumps), kChange (registrations, pushed events) and kHealth have one thread each. kLargeQuery
  // has one thread, for requests of kQuery whose body is longer than kLargeBody. The clients take
  // turns in each lane. A client is an IPv4 address, or the /64 network of an IPv6 address.
  enum class Lane : uint8_t { kQuery, kLargeQuery, kObserver, kChange, kHealth };
  static constexpr size_t kSmallBody = 64 << 10;
  static constexpr size_t kLargeBody = 512 << 10;
  Method method = Method::kGet;
  std::string path;
  // Runs on a pool thread. Several calls may run at the same time.
  std::function<HttpReply(const HttpRequest& request)> handler;
  Lane lane = Lane::kQuery;
  size_t max_body_bytes = kSmallBody;  // a longer body gets 413
  // The role that a token must have, if the server has tokens. nullopt: no token is needed.
  std::optional<AccessRole> access = AccessRole::kAdmin;
  // True: the handler is useless if the client has left, so the request may be dropped (see
  // HttpOptions::abandoned_after_ms). This is always assumed for kGet.
  bool needs_client = false;
};

// A request that was answered.
struct HttpAnswer {
  std::string_view peer;    // the client's IP address, or "unix"
  std::string_view method;  // only for a 401 or 403; otherwise empty
  std::string_view route;   // path of the route; empty: the path has no route
  int status = 0;
  std::string_view refused_for;  // the reason of a 401 or 403; empty: another status
  std::string_view traceparent;  // of the request; empty: none
};

struct HttpLimits {
  // Maximum size of the request line and headers together; longer: 431. Trailers, and a line of a
  // chunk, have the same maximum if they arrive in pieces.
  size_t max_head_bytes = 16 << 10;
  size_t max_body_bytes = 16 << 20;  // of any route; longer: 413
};

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 0;  // 0: any free port
  // Path of a unix socket with mode 0600, which is used in place of address and port. If the path
  // has a socket on which no process listens, this old socket is replaced. Empty: address and port
  // are used.
  std::string unix_path;
  // Names that clients use for this server, see HostRules. Loopback names are always allowed.
  std::vector<std::string> allowed_hosts;
  // The file of the access tokens, see AccessTokens::Read. Empty: no token is needed. A request
  // without a valid token gets 401. A request whose token does not allow the route gets 403. For
  // both statuses, the server replies without reading the body.
  std::string token_file;
  // PEM files: the certificate with its chain, and its key without a password. Both must be set, or
  // both must be empty. Empty: no TLS.
  std::string tls_certificate;
  std::string tls_key;
  HttpLimits limits;
  int threads = 4;  // number of threads for handlers of lane kQuery
  // Called for each answer, on the thread that owns all sockets; it must not block. The texts are
  // valid only during the call. Empty: nothing is called.
  std::function<void(const HttpAnswer&)> on_answer;
  // Maximum number of connections. The server lowers this maximum to the number of files that the
  // process may open, minus a reserve. One client can have at most 7/8 of this maximum. If a new
  // connection would exceed a maximum, the server closes a quiet connection of this client or of
  // the client with the most connections. If there is no such connection, the server closes the new
  // connection (see ClientConnections). Only HttpCounters::evicted records the closing.
  size_t max_connections = 16384;
  // Maximum number of bytes of all held requests, and maximum number of bytes of all held replies.
  // If requests exceed the maximum, the largest unfinished request gets 503. If no request is
  // unfinished, the latest request gets 503. If replies exceed the maximum, the server closes the
  // connection whose reply is the oldest.
  size_t max_held_bytes = 256u << 20;
  // Maximum time of the TLS handshake, and maximum time to receive a request. A connection without
  // a complete handshake is closed. An incomplete request gets 408.
  int64_t request_timeout_ms = 10000;
  int64_t write_timeout_ms = 10000;  // maximum time without progress while a reply is sent
  int64_t reply_timeout_ms = 60000;  // maximum time from the first to the last byte of a reply
  int64_t idle_timeout_ms = 60000;   // maximum time between requests
  int64_t drain_timeout_ms = 5000;   // time that Stop gives to requests that have begun
  // A request that has waited at least this time for its handler gets 503 if its client has ended
  // the connection or its sending side. See also HttpRoute::needs_client.
  int64_t abandoned_after_ms = 1000;
};

struct HttpCounters {
  uint64_t connections = 0;  // open connections
  uint64_t accepted = 0;
  uint64_t evicted = 0;        // connections that were closed because there were too many
  uint64_t timed_out = 0;      // requests and replies that took too long
  uint64_t refused_bytes = 0;  // requests and replies that were ended because of max_held_bytes
  uint64_t held_bytes = 0;     // bytes that are held now
  // Requests that had waited, and got no handler because their clients had ended the connection or
  // their sending side.
  uint64_t abandoned = 0;
};

// Numbers of answered requests, by the path of their route and then by status. The path "other"
// stands for all paths without a route, and for requests that have no valid head.
using HttpRequestCounts = std::map<std::string, std::map<int, uint64_t>, std::less<>>;

class HttpServer {
 public:
  // The server accepts requests when Start returns. kUnavailable: the server cannot listen on the
  // address, or no file descriptor is free. kInvalidArgument: options are out of range; the
  // certificate and key cannot be used, or the certificate is not valid now; the token file cannot
  // be used.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                   std::vector<HttpRoute> routes);
  ~HttpServer();

  int port() const;  // 0: a unix socket
  HttpCounters counters() const;
  HttpRequestCounts request_counts() const;
  // Accepts no new connections, and answers the requests that have begun, for at most
  // drain_timeout_ms. Handlers that run at the end of this time run to their end. Meanwhile another
  // server may listen on the address. May be called more than once, but only by one thread at a
  // time.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
