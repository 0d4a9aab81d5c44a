// ConnectionPhase: the activity of the server for a connection, and the order of the phases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast {

enum class ConnectionPhase : uint8_t {
  kHandshake,   // the TLS handshake; without TLS, this phase ends at once
  kIdle,        // no byte of the next request has arrived
  kReceiving,   // the request is not complete
  kContinuing,  // "100 Continue" is being sent; the body follows
  kHandling,    // a pool thread makes the reply or its next piece
  kReplying,    // a reply or a piece of a reply is being sent
  kLingering,   // the last reply was sent; received bytes are discarded
  kClosed,
};

constexpr bool MayFollow(ConnectionPhase before, ConnectionPhase after) {
  using Phase = ConnectionPhase;
  if (after == Phase::kClosed) return before != Phase::kClosed;
  switch (before) {
    case Phase::kHandshake:
      return after == Phase::kIdle;
    case Phase::kIdle:
      return after == Phase::kReceiving;
    case Phase::kReceiving:  // kReplying: the server answers without a handler
      return after == Phase::kContinuing || after == Phase::kHandling || after == Phase::kReplying;
    case Phase::kContinuing:
      return after == Phase::kReceiving;
    case Phase::kHandling:
      return after == Phase::kReplying;
    case Phase::kReplying:  // kHandling: another piece follows
      return after == Phase::kHandling || after == Phase::kIdle || after == Phase::kLingering;
    case Phase::kLingering:
    case Phase::kClosed:
      break;
  }
  return false;
}

// True from the first byte of a request to the last byte of its reply.
constexpr bool HasRequest(ConnectionPhase phase) {
  return phase >= ConnectionPhase::kReceiving && phase <= ConnectionPhase::kReplying;
}

// True: the server may close the connection to make room for another connection.
constexpr bool IsQuiet(ConnectionPhase phase) {
  return phase != ConnectionPhase::kHandling && phase != ConnectionPhase::kClosed;
}

}  // namespace kvcast
