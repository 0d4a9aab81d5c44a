// ReplayResponder: makes the replies of a publisher to a request, one by one. It has no sockets and
// no thread. KVX1: see src/residency/extension.h.
//
//   start number      the held batches from this number on, END
//   "snapshot"        the state as store events, each reply with the resume number, END
//   KVX1 REPLAY       the held batches of the range, END with a status
//   KVX1 SNAPSHOT     the state as store events, END with the status of the same moment
//   KVX1 STATUS       END with a status
//   KVX1 CHALLENGE    the answer of the engine as store events, END with a status
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/residency/extension.h"
#include "src/stream/net/frames.h"
#include "src/stream/publish/publisher_state.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

enum class RequestKind : uint8_t {
  kReplay,
  kSnapshot,
  kStatus,  // also challenges: requests with a short answer
};
// `start`: the last frame of a request, for a publisher with KVX1.
RequestKind RequestKindOf(Frame start);

// The progress of the answer to one request.
struct Answer {
  uint64_t next = 0;  // the batches [next, end) of the ring are left to send
  uint64_t end = 0;
  std::shared_ptr<StateSnapshot> snapshot;  // clients may share it; nullptr: no snapshot
  size_t parts_sent = 0;
  bool status_at_end = false;
};

// Thread-compatible.
class ReplayResponder {
 public:
  // `state` nullptr: the publisher has no KVX1. Both arguments must outlive the responder.
  ReplayResponder(ReplayRing& ring, PublisherState* state) : ring_(ring), state_(state) {}

  // `start`: the last frame of the request. `arrival`: the number of requests that arrived before
  // this request. Requests for a snapshot of the same buckets share the snapshot if they arrived
  // before it was made.
  Answer Begin(Frame start, uint64_t arrival);
  // True: Begin makes a new snapshot for the request. Begin then copies the blocks, which takes
  // about 0.1 s for a million blocks. The caller must write the parts of the snapshot.
  bool MakesSnapshot(Frame start, uint64_t arrival) const;
  // Number of snapshots that Begin has made.
  uint64_t snapshots() const { return snapshots_; }
  // The responder forgets the latest snapshot. The answers that use the snapshot keep it.
  void ForgetSnapshot() { latest_ = {}; }
  // Must be called when a request has arrived.
  void NoteArrival() { ++arrivals_; }
  uint64_t arrivals() const { return arrivals_; }
  // Appends the next replies to `out`, at most `limit`. REQUIRES: limit > 0. If Read appends
  // nothing, only END is left, or the next part of the snapshot is not written. Each sent reply
  // must be passed to Sent, in order. Read returns a reply again until the reply was passed to
  // Sent.
  void Read(const Answer& answer, size_t limit, std::vector<RingEntry>& out) const;
  void Sent(Answer& answer, const RingEntry& reply) const;
  // The payload of END; nullptr: no payload.
  Payload EndPayload(const Answer& answer) const;

 private:
  struct Latest {
    std::shared_ptr<StateSnapshot> snapshot;
    residency::BucketMask buckets;
    uint64_t arrivals = 0;  // requests that had arrived when the snapshot was made
  };
  bool CanAnswer(const residency::ExtensionRequest& request) const;
  Answer BeginExtended(const residency::ExtensionRequest& request, uint64_t arrival);
  bool IsShared(const residency::BucketMask& buckets, uint64_t arrival) const;
  std::shared_ptr<StateSnapshot> Snapshot(const residency::BucketMask& buckets, uint64_t arrival);

  ReplayRing& ring_;
  PublisherState* const state_;
  Latest latest_;
  uint64_t arrivals_ = 0;
  uint64_t snapshots_ = 0;
};

}  // namespace kvcast::stream
