// SourceTransport: the network of one followed source, as SourcePump uses it. SourceLink implements
// it with sockets, the simulation with a simulated network.
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

// No call waits. Received frames stay valid until the next ReceiveLive or ReceiveReply.
class SourceTransport {
 public:
  virtual ~SourceTransport() = default;

  // Replaces the live connection and drops the messages and events of the old one. The new
  // connection may drop and reconnect by itself: kDisconnected and kConnected report that. False:
  // no connection can be made now; the old one stays as it is.
  virtual bool OpenLive() = 0;
  // The live connection is not used any more until OpenLive. New messages of it do not count as
  // work. A bound endpoint becomes free.
  virtual void EndLive() = 0;
  // The oldest event that was not returned yet. An event is visible here before any message that
  // the network received after it.
  virtual std::optional<LiveEvent> NextLiveEvent() = 0;
  virtual std::optional<Frames> ReceiveLive() = 0;

  // Closes the open request, and sends `start` as the new one. Replies to earlier requests are
  // not received any more.
  virtual void OpenRequest(Frame start) = 0;
  virtual void CloseRequest() = 0;
  virtual std::optional<Frames> ReceiveReply() = 0;
  // Whether the connection of the open request has ended since the last call.
  virtual bool TakeReplyCut() = 0;
};

}  // namespace kvcast::stream
