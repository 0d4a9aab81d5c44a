// LookSchedule: the times of the periodic requests of a source. A probe finds batches that did not
// arrive. An audit compares digests. A challenge asks for the hash scheme of the engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "src/stream/follow/due.h"

namespace kvcast::stream {

// Thread-compatible. All times are in milliseconds of one monotonic clock.
class LookSchedule {
 public:
  // A batch that is published while the subscription is on its way may be missing from both the
  // first replay and the live stream. A second probe, kSettleMs after the first probe, finds the
  // batch.
  static constexpr int64_t kSettleMs = 100;

  explicit LookSchedule(int64_t probe_interval_ms) : probe_interval_ms_(probe_interval_ms) {}

  int64_t probe_due_ms() const { return probe_due_ms_; }
  int64_t audit_due_ms() const { return audit_due_ms_; }
  int64_t challenge_due_ms() const { return challenge_due_ms_; }

  // The next NoteJoined schedules a second probe after kSettleMs.
  void Restart() {
    second_probe_scheduled_ = false;
    challenge_due_ms_ = kAtOnce;
  }
  // The source has joined the stream, or has joined it again.
  void NoteJoined(int64_t now_ms) {
    const bool again = std::exchange(second_probe_scheduled_, true);
    probe_due_ms_ = now_ms + (again ? probe_interval_ms_ : kSettleMs);
  }
  // The next probe is due one interval after `now_ms`.
  void NoteProbe(int64_t now_ms) { probe_due_ms_ = now_ms + probe_interval_ms_; }
  void AuditAt(int64_t due_ms) { audit_due_ms_ = due_ms; }
  // The publisher may not know the hash scheme yet, so the challenge may be sent again. Batches do
  // not delay the next challenge, because a batch may show the scheme to the publisher.
  void NoteChallenge(int64_t now_ms) { challenge_due_ms_ = now_ms + probe_interval_ms_; }

 private:
  const int64_t probe_interval_ms_;
  int64_t probe_due_ms_ = kAtOnce;
  int64_t audit_due_ms_ = kAtOnce;
  int64_t challenge_due_ms_ = kAtOnce;
  bool second_probe_scheduled_ = false;
};

}  // namespace kvcast::stream
