// HttpClient: sends requests to an API server, and reads each answer while the answer arrives.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace kvcast::router {

struct HttpGet {
  std::string url;    // http:// or https://
  std::string token;  // for the header Authorization, as a bearer; empty: no such header
  // PEM file of the authorities that sign the server's certificate; empty: the authorities of the
  // system.
  std::string ca_file;
  int64_t limit_ms = 0;  // time limit of the whole request; 0: no limit
  // Gets the status and the next bytes of the body. The first call comes directly after the headers
  // and has no bytes. False: the request ends. Called by the thread of HttpClient::get.
  std::function<bool(int status, std::string_view bytes)> on_bytes;
};

struct HttpOutcome {
  int status = 0;     // 0: no answer
  std::string error;  // one line; empty: the answer is complete
};

struct HttpClient {
  // Blocks until the answer is complete or the request ends. One call at a time.
  std::function<HttpOutcome(const HttpGet&)> get;
  // The request in progress ends soon, and each later request ends at once. Thread-safe; does not
  // wait.
  std::function<void()> stop;
};

using MakeHttpClient = std::function<HttpClient()>;

}  // namespace kvcast::router
