// The CURVE flags of the commands, and the keys that they name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/curve.h"

namespace kvcast::tools {

// Of a command that publishes events.
struct CurveServerOptions {
  std::string key;        // path of a secret key; empty: no CURVE
  std::string clients;    // path of an AccessList
  bool insecure = false;  // without CURVE, the endpoints may be beyond loopback
};

// Of a command that follows publishers.
struct CurveClientOptions {
  std::string key;         // path of a secret key; empty: no CURVE
  std::string server_key;  // the publisher's public key
  bool insecure = false;   // without CURVE, the endpoints may be beyond loopback
};

// nullopt: the sockets have no CURVE. kInvalidArgument: a file cannot be used, a flag is missing,
// or an endpoint is beyond loopback without CURVE and without `insecure`.
Result<std::optional<CurveServer>> LoadCurveServer(const CurveServerOptions& options,
                                                   const std::vector<std::string>& endpoints);
Result<std::optional<CurveClient>> LoadCurveClient(const CurveClientOptions& options,
                                                   const std::vector<std::string>& endpoints);

// Prints a line on stderr when a counter has increased. `name` begins the line. Not thread-safe.
class RefusalLog {
 public:
  static constexpr int64_t kPeriodMs = 1000;

  explicit RefusalLog(std::string name) : name_(std::move(name)) {}
  // True at most once in kPeriodMs: the caller should then read the counters and call Note.
  bool Due();
  void Note(const RefusedConnections& refused, uint64_t denied, uint64_t list_failures);

 private:
  const std::string name_;
  int64_t next_ms_ = 0;
  uint64_t told_ = 0;
};

}  // namespace kvcast::tools
