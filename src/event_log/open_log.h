// OpenLog: a durable log that this process reads, and publishes at endpoints of its own. The
// endpoint nats:MODEL/WORKER of a source names the log; see docs/nats.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "src/event_log/bridge_status.h"

namespace kvcast {

inline constexpr std::string_view kLogScheme = "nats:";

inline bool IsLogEndpoint(std::string_view endpoint) { return endpoint.starts_with(kLogScheme); }

// A log that is read. A publisher of this process publishes the log's events at the endpoints.
struct OpenLog {
  std::string endpoint;
  std::string replay_endpoint;
  std::shared_ptr<void> reader;  // the log is read until this pointer is released
  // May be called until `reader` is released, on any thread. Empty: there is no status.
  std::function<event_log::BridgeStatus()> status = {};
};

// Options of the publisher in this process; see PublisherConfig.
struct OpenLogOptions {
  bool repeats_are_refreshes = false;
  uint64_t max_blocks = 1u << 24;
};

// Starts to read the log MODEL/WORKER. kInvalidArgument: the name is not MODEL/WORKER. The server
// of the log need not be reachable.
using OpenEventLog =
    std::function<Result<OpenLog>(const std::string& name, const OpenLogOptions& options)>;

}  // namespace kvcast
