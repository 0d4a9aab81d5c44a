// Quarantine: where a source goes whose state is found wrong again and again although it was
// replaced. Its answers do not count until it has been right for a while.
// Not thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kvcast/stream/subscriber.h"

namespace kvcast::stream {

class Quarantine {
 public:
  static constexpr int kMaxStrikes = 3;
  // A strike counts for this long.
  static constexpr int64_t kStrikeMs = 600000;
  // Without a strike, for the first time; then twice as long each time.
  static constexpr int64_t kMinMs = 20000;
  static constexpr int64_t kMaxMs = 600000;

  // The state was wrong, or cannot be had.
  void Strike(SourceReason why, int64_t now_ms) {
    if (!active_ && now_ms - struck_ms_ >= kStrikeMs) Reset();
    struck_ms_ = now_ms;
    why_ = why;
    if (active_ || ++strikes_ < kMaxStrikes) return;
    active_ = true;
    ++times_;
  }
  // The state is right, or nobody can tell. Nothing changes before until_ms().
  void Pardon(int64_t now_ms) {
    if (strikes_ == 0 || now_ms < until_ms()) return;
    // The first strike from now on brings it back.
    strikes_ = active_ ? kMaxStrikes - 1 : 0;
    if (strikes_ == 0) times_ = 0;
    active_ = false;
    struck_ms_ = now_ms;
  }
  // It is another publisher.
  void Reset() { *this = Quarantine(); }

  bool active() const { return active_; }
  SourceReason why() const { return why_; }
  int64_t until_ms() const {
    return struck_ms_ + std::min(kMinMs << std::clamp(times_ - 1, 0, 5), kMaxMs);
  }

 private:
  bool active_ = false;
  int strikes_ = 0;
  int times_ = 0;  // since it was last free of strikes
  int64_t struck_ms_ = 0;
  SourceReason why_ = SourceReason::kNone;
};

}  // namespace kvcast::stream
