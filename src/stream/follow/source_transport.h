// SourceTransport: the network of one followed source, as SourcePump uses it. SourceLink implements
// it with sockets. The simulation implements it with a simulated network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/stream/net/frames.h"

namespace kvcast::stream {

// An event of the live connection.
enum class LiveEvent : uint8_t {
  kConnected,
  kDisconnected,
  // A peer connected and failed its handshake. kDisconnected of the same peer follows.
  kHandshakeFailed,
};

// No call blocks. Received frames stay valid until the next ReceiveLive or ReceiveReply.
class SourceTransport {
 public:
  virtual ~SourceTransport() = default;

  // Replaces the live connection, and drops the messages and events of the old one. If the new
  // connection drops and reconnects by itself, NextLiveEvent returns kDisconnected and kConnected.
  // False: no connection can be made at this time; the old connection is unchanged.
  virtual bool OpenLive() = 0;
  // The live connection is not used until the next OpenLive. New messages of the connection do not
  // wake the caller. A bound endpoint is released.
  virtual void EndLive() = 0;
  // The oldest event that was not returned yet. An event is returned here before any message that
  // the network received after the event.
  virtual std::optional<LiveEvent> NextLiveEvent() = 0;
  virtual std::optional<Frames> ReceiveLive() = 0;

  // Closes the open request, and sends `start` as the new request. Replies to earlier requests are
  // not received after this call.
  virtual void OpenRequest(Frame start) = 0;
  virtual void CloseRequest() = 0;
  virtual std::optional<Frames> ReceiveReply() = 0;
  // True: the connection of the open request has ended since the last call.
  virtual bool TakeReplyCut() = 0;
};

}  // namespace kvcast::stream
