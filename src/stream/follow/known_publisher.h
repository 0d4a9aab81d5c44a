// KnownPublisher: the facts that a source has about its publisher. PublisherProof: whether the
// source needs a proof that the publisher is still the same publisher.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/residency/extension.h"

namespace kvcast::stream {

// Whether the source needs a proof of the publisher before it applies the next batch. The proof is
// a replayed batch that equals an applied batch, or a status with the epoch of the applied batches.
// Thread-compatible.
class PublisherProof {
 public:
  bool missing() const { return missing_; }

  void Require() { missing_ = true; }
  // The state was read from a file, and its publisher was not seen since.
  void RequireForSavedState() { missing_ = of_saved_state_ = true; }
  void RequireAtNextLive() { at_next_live_ = true; }
  void RequireAfterRequest() { after_request_ = true; }
  void Give() { missing_ = of_saved_state_ = false; }
  // Drops the postponed requirements, because they concerned the previous connection.
  void Reconnect() { at_next_live_ = after_request_ = false; }

  // True: the state was read from a file, and no proof was given since.
  bool concerns_saved_state() const { return of_saved_state_; }
  bool required_at_next_live() const { return at_next_live_; }
  // True: a requirement was postponed until this event. From this call on, the proof is missing.
  bool ApplyAtNextLive() { return Move(at_next_live_); }
  bool ApplyAfterRequest() { return Move(after_request_); }

 private:
  bool Move(bool& postponed) {
    if (!postponed) return false;
    postponed = false;
    return missing_ = true;
  }

  bool missing_ = false;
  bool of_saved_state_ = false;  // implies missing_
  bool at_next_live_ = false;
  bool after_request_ = false;  // at the end of the open request
};

struct KnownPublisher {
  bool extended = false;                  // supports KVX1 (extension.h), as far as is known
  bool gives_digests = true;              // false: the latest status of this epoch had no digests
  bool extended_known = false;            // `extended` is known for this connection
  bool answers_challenges = false;        // according to the latest status
  bool challenged = false;                // a challenge was sent in this epoch
  bool replied_batch = false;             // has replied with a batch in this epoch
  uint64_t copies = 0;                    // number of block copies, according to the latest status
  std::optional<residency::Epoch> epoch;  // of the applied batches
  std::optional<residency::Epoch> latest_epoch;      // in the latest status
  std::optional<residency::Epoch> epoch_at_connect;  // latest_epoch at the latest connection
  PublisherProof proof;

  // The publisher of a new connection may or may not support KVX1.
  void Reconnect() {
    epoch_at_connect = latest_epoch;
    extended_known = false;
    proof.Reconnect();
  }
  void BeginEpoch() {
    epoch.reset();
    gives_digests = true;
    replied_batch = false;
    answers_challenges = false;
    challenged = false;
    proof = {};
  }
  // True: the epoch of `status` was known before the live connection was established. The peer of
  // the live connection is then the publisher of this epoch. False: the peer may be the previous
  // publisher, and the last batches of the previous publisher may still be on their way.
  bool IsPeerOfConnection(const residency::PublisherStatus& status) const {
    return epoch_at_connect == status.epoch;
  }
  // True: the applied batches come from another publisher than the status. All batches that were
  // applied before the request for the status was sent have sequence numbers below `applied_next`.
  // Later batches may be newer than the status.
  bool Replaces(const residency::PublisherStatus& status, uint64_t applied_next) const {
    return epoch ? *epoch != status.epoch : status.next_seq < applied_next;
  }
};

}  // namespace kvcast::stream
