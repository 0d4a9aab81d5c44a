// KnownPublisher: the facts that a source knows about its publisher, and the proof that the
// publisher is still the same one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/residency/extension.h"

namespace kvcast::stream {

// Whether a replayed batch or a status must prove the publisher before the next batch is applied.
// Thread-compatible.
class PublisherProof {
 public:
  bool missing() const { return missing_; }

  void Require() { missing_ = true; }
  void RequireAtNextLive() { at_next_live_ = true; }
  void RequireAfterRequest() { after_request_ = true; }
  void Give() { missing_ = false; }
  // The postponed requirements concerned the previous connection.
  void Reconnect() { at_next_live_ = after_request_ = false; }

  bool required_at_next_live() const { return at_next_live_; }
  // True: the requirement was postponed, and holds from this call on.
  bool ApplyAtNextLive() { return Move(at_next_live_); }
  bool ApplyAfterRequest() { return Move(after_request_); }

 private:
  bool Move(bool& postponed) {
    if (!postponed) return false;
    postponed = false;
    return missing_ = true;
  }

  bool missing_ = false;
  bool at_next_live_ = false;
  bool after_request_ = false;  // at the end of the open request
};

struct KnownPublisher {
  bool extended = false;                  // supports KVX1: has replied with a status
  bool gives_digests = true;              // false: the latest status of this epoch had no digests
  bool asked = false;                     // `extended` is known for this connection
  bool replied_batch = false;             // has replied with a batch in this epoch
  std::optional<residency::Epoch> epoch;  // of the applied batches
  std::optional<residency::Epoch> latest_epoch;      // in the latest status
  std::optional<residency::Epoch> epoch_at_connect;  // latest_epoch at the latest connection
  PublisherProof proof;

  // The publisher of a new connection may or may not support KVX1.
  void Reconnect() {
    epoch_at_connect = latest_epoch;
    asked = false;
    proof.Reconnect();
  }
  void BeginEpoch() {
    epoch.reset();
    gives_digests = true;
    replied_batch = false;
    proof = {};
  }
  // If the publisher had this epoch before the live connection was established, and still has it,
  // this publisher is the peer of the live connection. Otherwise the peer may be the previous
  // publisher. Its last batches may still be on their way.
  bool IsPeerOfConnection(const residency::PublisherStatus& status) const {
    return epoch_at_connect == status.epoch;
  }
  // True: the status shows that the applied batches, all below `next`, come from another publisher.
  bool Replaces(const residency::PublisherStatus& status, uint64_t next) const {
    return epoch ? *epoch != status.epoch : next > 0 && status.next_seq < next;
  }
};

}  // namespace kvcast::stream
