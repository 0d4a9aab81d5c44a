// LiveSender: a publisher's PUB socket and what of its ring is to go there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/stream/net/socket.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

// A PUB socket never waits: it drops for a subscriber that is behind by its high-water mark, which
// that subscriber sees as a gap. One thread at a time.
class LiveSender {
 public:
  enum class Sent : uint8_t { kNothing, kAll, kSome };

  // `ring` must outlive it.
  LiveSender(Socket pub, std::string topic, ReplayRing& ring);

  // Hands unsent batches to the socket, not without end.
  Sent Send();

 private:
  void Send(const RingEntry& entry);

  Socket pub_;
  const std::string topic_;
  ReplayRing& ring_;
  std::vector<RingEntry> slice_;
};

}  // namespace kvcast::stream
