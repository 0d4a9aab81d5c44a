// The CURVE flags of the commands, and the keys that they name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/curve.h"

namespace kvcast::tools {

// The flags of a command that publishes events.
struct CurveServerOptions {
  std::string key;        // path of a secret key; empty: no CURVE
  std::string clients;    // path of an AccessList
  bool insecure = false;  // without CURVE, the endpoints may be beyond loopback
};

// The flags of a command that follows publishers.
struct CurveClientOptions {
  std::string key;                           // path of a secret key; empty: no CURVE
  std::string server_key;                    // the publisher's public key
  bool insecure = false;                     // without CURVE, the endpoints may be beyond loopback
  const char* insecure_flag = "--insecure";  // the flag that sets `insecure`
};

// nullopt: the sockets have no CURVE. kInvalidArgument: a file cannot be used, a flag is missing
// or contradicts another flag, or an endpoint is beyond loopback without CURVE and without
// `insecure`. kUnavailable: libzmq is built without CURVE.
Result<std::optional<CurveServer>> LoadCurveServer(const CurveServerOptions& options,
                                                   const std::vector<std::string>& endpoints);
Result<std::optional<CurveClient>> LoadCurveClient(const CurveClientOptions& options,
                                                   const std::vector<std::string>& endpoints);

}  // namespace kvcast::tools
