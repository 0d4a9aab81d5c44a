// ReplayResponder: makes the replies of a publisher to a request, one by one. It has no sockets and
// no thread.
//
//   start number      the held batches from this number on, END
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

enum class RequestKind : uint8_t { kReplay, kSnapshot, kStatus };
// `start`: the last frame of a request, for a publisher with KVX1.
RequestKind RequestKindOf(Frame start);

// The progress of the answer to one request.
struct Answer {
  uint64_t next = 0;  // the batches [next, end) of the ring are left to send
  uint64_t end = 0;
  std::optional<StateSnapshot> snapshot;
  size_t parts_sent = 0;
  bool status_at_end = false;
};

// Thread-compatible.
class ReplayResponder {
 public:
  // `state` nullptr: the publisher has no KVX1. Both arguments must outlive the responder.
  ReplayResponder(ReplayRing& ring, PublisherState* state) : ring_(ring), state_(state) {}

  // `start`: the last frame of the request.
  Answer Begin(Frame start);
  // Appends the next replies to `out`, at most `limit` > 0. If there are none, only END is left. A
  // reply counts as sent when it is passed to Sent, in order. Later calls of Read return all
  // replies again that were not passed to Sent.
  void Read(const Answer& answer, size_t limit, std::vector<RingEntry>& out) const;
  void Sent(Answer& answer, const RingEntry& reply) const;
  // The payload of END; nullptr: no payload.
  Payload EndPayload(const Answer& answer) const;

 private:
  Answer BeginExtended(const residency::ExtensionRequest& request);

  ReplayRing& ring_;
  PublisherState* const state_;
};

}  // namespace kvcast::stream
