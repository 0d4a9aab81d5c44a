// LiveSender: sends the unsent batches of a publisher's ring over its PUB socket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/stream/net/gate.h"
#include "src/stream/net/socket.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

// A PUB socket never blocks. If a subscriber is behind by the high-water mark, the socket drops
// messages for this subscriber, and the subscriber sees a gap. Only one thread may use a LiveSender
// at a time.
class LiveSender {
 public:
  enum class Sent : uint8_t { kNothing, kAll, kSome };

  // `ring` must outlive the sender. `guard` (nullptr: none) is the guard of `pub`, and must outlive
  // the sender too. While `holds` returns true, the batches stay in the ring. `holds` may be empty:
  // the batches are then sent without delay.
  LiveSender(Socket pub, std::string topic, ReplayRing& ring, Guard* guard = nullptr,
             std::function<bool()> holds = nullptr);

  // Calls Guard::HandleWake. Passes unsent batches to the socket, a bounded number per call. kSome:
  // the bound was reached, so unsent batches may be left.
  Sent Send();

 private:
  void Send(const RingEntry& entry);

  Socket pub_;
  Guard* const guard_;
  const std::string topic_;
  ReplayRing& ring_;
  const std::function<bool()> holds_;
  std::vector<RingEntry> slice_;
};

}  // namespace kvcast::stream
