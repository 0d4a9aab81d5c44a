// Quarantine: decides when a source is quarantined. A source is quarantined if its state was found
// to be wrong repeatedly, although the state was replaced. The weight of a quarantined source is 0.
// The quarantine ends after the state was correct for some time. Not thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kvcast/stream/subscriber.h"

namespace kvcast::stream {

class Quarantine {
 public:
  static constexpr int kMaxFailures = 3;
  // If no failure follows for this time, all failures are forgotten.
  static constexpr int64_t kFailureMs = 600000;
  // The first quarantine ends after this time without a failure. Each further quarantine takes
  // twice the time of the previous quarantine, but at most kMaxMs.
  static constexpr int64_t kMinMs = 20000;
  static constexpr int64_t kMaxMs = 600000;

  // Records a failure: the state was wrong, or no state could be received.
  void NoteFailure(SourceReason why, int64_t now_ms) {
    if (!active_ && now_ms - changed_ms_ >= kFailureMs) Reset();
    changed_ms_ = now_ms;
    why_ = why;
    if (active_ || ++failures_ < kMaxFailures) return;
    active_ = true;
    ++quarantines_;
  }
  // Records a failure that begins a quarantine at once.
  void Begin(SourceReason why, int64_t now_ms) {
    failures_ = std::max(failures_, kMaxFailures - 1);
    changed_ms_ = now_ms;
    NoteFailure(why, now_ms);
  }
  // Records that the state is correct or cannot be verified. Has no effect before until_ms().
  void NotePass(int64_t now_ms) {
    if (failures_ == 0 || now_ms < until_ms()) return;
    // The next failure starts the quarantine again.
    failures_ = active_ ? kMaxFailures - 1 : 0;
    if (failures_ == 0) quarantines_ = 0;
    active_ = false;
    changed_ms_ = now_ms;
  }
  // Forgets all failures. Must be called when a new publisher has replaced the previous publisher.
  void Reset() { *this = Quarantine(); }

  bool active() const { return active_; }
  SourceReason why() const { return why_; }
  int64_t until_ms() const {
    return changed_ms_ + std::min(kMinMs << std::clamp(quarantines_ - 1, 0, 5), kMaxMs);
  }

 private:
  bool active_ = false;
  int failures_ = 0;
  int quarantines_ = 0;  // since all failures were forgotten
  int64_t changed_ms_ = 0;
  SourceReason why_ = SourceReason::kNone;
};

}  // namespace kvcast::stream
