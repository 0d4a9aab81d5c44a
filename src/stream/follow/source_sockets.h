// The two sockets of a followed source, and their options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/stream/net/socket.h"

namespace kvcast::stream {

struct LiveSocketOptions {
  std::string topic;
  int recv_hwm = 0;
  int64_t max_frame_bytes = 0;
};

// A SUB socket that is neither connected nor bound yet. It reconnects by itself. Messages of
// different connections may then be received in any order.
Result<Socket> MakeLiveSocket(std::shared_ptr<Context> context, const std::string& endpoint,
                              const LiveSocketOptions& options);

// A DEALER socket for one request, not connected yet.
Result<Socket> MakeReplaySocket(std::shared_ptr<Context> context, const std::string& endpoint,
                                int64_t max_frame_bytes);

}  // namespace kvcast::stream
