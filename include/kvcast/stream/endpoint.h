// Endpoints of ZeroMQ sockets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"

namespace kvcast {

enum class Transport : uint8_t { kTcp, kIpc, kInproc };

// The parts of an endpoint to which a socket can connect.
struct Endpoint {
  Transport transport = Transport::kTcp;
  // tcp: an IPv4 address, an IPv6 address without brackets, or a host name. ipc: the path. inproc:
  // the name.
  std::string host;
  int port = 0;  // tcp: 1..65535

  // True: `host` must be resolved before a socket can connect.
  bool has_name() const;
  // True: the peer runs on this machine.
  bool is_local() const;
  std::string ToString() const;
};

// Accepts tcp://HOST:PORT, ipc://PATH and inproc://NAME. Error: kInvalidArgument; the message names
// the endpoint. Other transports of libzmq are refused, because some of them open sockets that
// listen on all interfaces.
Result<Endpoint> ParseEndpoint(std::string_view text);

}  // namespace kvcast
