// HttpServer: a few fixed routes over HTTP/1.1. Blocking, with a pool of threads; meant for
// loopback or behind a proxy: it has no TLS and no authentication.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/status.h"

namespace kvcast::router {

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
};

// {"error": "<text>"} with this status.
HttpReply HttpError(int status, const std::string& text);

struct HttpRoute {
  enum class Method { kGet, kPost };
  Method method = Method::kGet;
  std::string path;
  // Runs on a pool thread, several at a time. The body of a GET is empty.
  std::function<HttpReply(const std::string& body)> handler;
};

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 0;                      // 0: any free one
  size_t max_body_bytes = 16 << 20;  // longer bodies get 413
  int threads = 8;                   // an idle keep-alive connection holds one
};

class HttpServer {
 public:
  // Serving when it returns. kUnavailable: the address is in use or not of this host.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                   std::vector<HttpRoute> routes);
  ~HttpServer();

  int port() const;
  // Waits for requests in flight. May be called twice, by one thread at a time.
  void Stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
