// ReplayResponder: what a publisher answers to a request, reply by reply. No sockets, no thread.
//
//   start number      the held batches from it on, END
//   "snapshot"        the state as stores, each reply with the resume number, END
//   KVX1 REPLAY       the held batches of the range, END with a status
//   KVX1 SNAPSHOT     the state as stores, END with the status of the same moment
//   KVX1 STATUS       END with a status
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/residency/extension.h"
#include "src/stream/net/frames.h"
#include "src/stream/publish/publisher_state.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

// How far a request is answered.
struct Answer {
  uint64_t next = 0;  // batches of the ring
  uint64_t end = 0;
  std::optional<StateSnapshot> snapshot;
  size_t parts_sent = 0;
  bool status_at_end = false;
};

// Thread-compatible.
class ReplayResponder {
 public:
  // `state` nullptr: a publisher without KVX1. Both must outlive it.
  ReplayResponder(ReplayRing& ring, PublisherState* state) : ring_(ring), state_(state) {}

  // `start`: the request's last frame.
  Answer Begin(Frame start);
  // Appends up to `limit` > 0 replies that follow; none: only END is left. They count as sent once
  // they are passed to Sent, in order; those that are not come again.
  void Read(const Answer& answer, size_t limit, std::vector<RingEntry>& out) const;
  void Sent(Answer& answer, const RingEntry& reply) const;
  // What END carries; nullptr: nothing.
  Payload EndPayload(const Answer& answer) const;

 private:
  Answer BeginExtended(const residency::ExtensionRequest& request);

  ReplayRing& ring_;
  PublisherState* const state_;
};

}  // namespace kvcast::stream
