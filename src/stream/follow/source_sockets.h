// The two sockets of a followed source, and their options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/stream/net/socket.h"

namespace kvcast::stream {

struct SourceSocketOptions {
  std::string topic;                 // live socket
  int recv_hwm = 0;                  // live socket; in messages; 0: no limit
  int64_t max_frame_bytes = 0;       // both sockets
  std::optional<CurveClient> curve;  // both sockets
};

// A SUB socket that is not connected or bound yet. After a lost connection, the socket reconnects
// by itself. Messages of different connections may then be received in any order.
Result<Socket> MakeLiveSocket(std::shared_ptr<Context> context, const std::string& endpoint,
                              const SourceSocketOptions& options);

// A DEALER socket for one request, not connected yet.
Result<Socket> MakeReplaySocket(std::shared_ptr<Context> context, const std::string& endpoint,
                                const SourceSocketOptions& options);

}  // namespace kvcast::stream
