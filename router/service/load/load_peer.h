// LoadPeer: the address of another router whose load this router follows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "kvcast/core/status.h"

namespace kvcast::router {

struct LoadPeer {
  std::string endpoint;    // the load endpoint of the other router
  std::string server_key;  // the public CURVE key of the other router; empty: no CURVE

  bool operator==(const LoadPeer&) const = default;
};

// Reads "ENDPOINT" or "ENDPOINT,server_key=KEY". Error: the endpoint or the key is invalid.
Result<LoadPeer> ParseLoadPeer(std::string_view text);

}  // namespace kvcast::router
