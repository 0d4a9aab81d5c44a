// A peer that sends one whole frame, for tests of the limits of frames.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "apps/conformance/frames/zmtp_peer.h"

namespace kvcast::testing {

// Connects a peer with a socket of this type ("SUB", "DEALER"), and sends a frame of this size.
// Returns true if the server ends the connection.
inline bool EndsConnectionOfFrame(const std::string& endpoint, const std::string& type,
                                  size_t bytes) {
  auto peer = tools::ZmtpPeer::Connect(endpoint);
  if (!peer.ok() || !peer->Handshake(type).ok()) {
    ADD_FAILURE() << "no connection to " << endpoint;
    return false;
  }
  return !peer->SendMessage({std::string(bytes, '\1')}).ok() || !peer->Fence().ok();
}

}  // namespace kvcast::testing
