// An open-loop HTTP client: requests are due on a fixed schedule, whether or not those before are
// answered, and a latency counts from the time that the request was due. A server that stalls pays
// for all that it kept waiting.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

struct HttpLoadConfig {
  int port = 0;          // of 127.0.0.1
  int connections = 64;  // kept alive; one request on each at a time
  double rate = 2000;    // requests a second
  double warm_up_seconds = 1;
  double seconds = 10;  // behind the warm-up, those that are counted
};

struct HttpLoadResult {
  uint64_t offered = 0;          // due in the time that counts
  uint64_t answered = 0;         // of them, with 200
  uint64_t failed = 0;           // another status, or a broken connection
  double seconds = 0;            // from the first of them due to the last one answered
  std::vector<float> latencies;  // seconds, of those answered
};

// `requests`: whole requests, sent one after the other and again from the first. Not ok: no
// connection.
Result<HttpLoadResult> RunHttpLoad(const HttpLoadConfig& config,
                                   const std::vector<std::string>& requests);

// A whole POST of JSON.
std::string HttpPost(const std::string& path, const std::string& body);
// The body of the answer to a GET. Not ok: not 200.
Result<std::string> HttpGet(int port, const std::string& path);

}  // namespace kvcast::tools
