// An open-loop HTTP client. Requests are due on a fixed schedule, even if earlier requests are not
// answered. The latency of a request starts at its due time, so a stall of the server adds to the
// latency of all waiting requests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/machine/slow_times.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct HttpLoadConfig {
  int port = 0;          // on 127.0.0.1
  int connections = 64;  // kept alive; one request at a time on each
  double rate = 2000;    // requests per second
  double warm_up_seconds = 1;
  double seconds = 10;  // measured time after the warm-up
};

struct HttpLoadResult {
  uint64_t offered = 0;   // requests due in the measured time
  uint64_t answered = 0;  // offered requests that were answered with 200
  // Offered requests that were answered with another status, and all requests without an answer.
  // Requests of the warm-up without an answer count too.
  uint64_t failed = 0;
  // From the due time of the first offered request to the last answer. 0: no answer.
  double seconds = 0;
  std::vector<bench::TimedDelay> latencies;  // of the answered requests, from their due times
};

// `requests` are complete requests. The client sends them in order. After the last request it
// starts again with the first. Errors: kInvalidArgument for a duration or rate out of range;
// kUnavailable if there is no connection.
Result<HttpLoadResult> RunHttpLoad(const HttpLoadConfig& config,
                                   const std::vector<std::string>& requests);

// Returns a complete POST request with a JSON body.
std::string HttpPost(const std::string& path, const std::string& body);
// Returns the body of the answer to a GET. Not ok: no connection, no bytes for 10 s, or the status
// is not 200.
Result<std::string> HttpGet(int port, const std::string& path);

}  // namespace kvcast::tools
