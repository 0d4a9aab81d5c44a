// LiveSender: the thread that owns the PUB socket and sends what the ring holds unsent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <thread>

#include "src/stream/replay_ring.h"
#include "src/stream/socket.h"

namespace kvcast::stream {

// A PUB socket never waits: it drops for a subscriber that is behind by its high-water mark, which
// that subscriber sees as a gap.
class LiveSender {
 public:
  // Starts the thread. `ring` must outlive it. Throws std::system_error if no thread can start.
  LiveSender(Socket pub, std::string topic, ReplayRing& ring);
  // REQUIRES: the ring is closed. Hands everything unsent to the socket.
  ~LiveSender() { thread_.join(); }

 private:
  void Run();
  void Send(const RingEntry& entry);

  Socket pub_;
  const std::string topic_;
  ReplayRing& ring_;
  std::thread thread_;
};

}  // namespace kvcast::stream
