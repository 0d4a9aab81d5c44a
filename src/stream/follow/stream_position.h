// StreamPosition: the sequence numbers of a source: the next number to apply, and the highest
// numbers that were seen. A hole is a number that was not applied, below a number that was seen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/base/check.h"
#include "src/stream/follow/due.h"

namespace kvcast::stream {

// Thread-compatible. All times are in milliseconds of one monotonic clock.
class StreamPosition {
 public:
  uint64_t next() const { return next_; }            // the next number to apply
  uint64_t live_next() const { return live_next_; }  // one above the highest number seen live
  uint64_t seen_next() const { return seen_next_; }  // one above the highest number seen
  bool has_hole() const { return next_ < seen_next_; }

  void SeeLive(uint64_t seq) {
    live_next_ = seq + 1;
    SeeUpTo(live_next_);
  }
  // All numbers below `end` exist.
  void SeeUpTo(uint64_t end) { seen_next_ = std::max(seen_next_, end); }
  // The numbers below `next` were applied, replaced by a snapshot, or given up.
  void Advance(uint64_t next) {
    KV_CHECK(next >= next_);
    next_ = next;
    SeeUpTo(next);
  }
  // On a new connection, numbers above the applied numbers may arrive again.
  void Reconnect() {
    live_next_ = std::min(live_next_, next_);
    seen_next_ = next_;
    announced_due_ms_ = kNever;
  }

  // A status shows that all numbers below `end` exist. Batches below `end` that have not arrived by
  // `due_ms` are missing. A second announcement before `due_ms` is ignored.
  void Announce(uint64_t end, int64_t due_ms) {
    if (end <= seen_next_ || announced_due_ms_ != kNever) return;
    announced_next_ = end;
    announced_due_ms_ = due_ms;
  }
  int64_t announced_due_ms() const { return announced_due_ms_; }
  // True: the announcement was due, and its numbers count as seen from this call on.
  bool TakeAnnounced(int64_t now_ms) {
    if (now_ms < announced_due_ms_) return false;
    announced_due_ms_ = kNever;
    SeeUpTo(announced_next_);
    return true;
  }

 private:
  uint64_t next_ = 0;
  uint64_t live_next_ = 0;
  uint64_t seen_next_ = 0;
  uint64_t announced_next_ = 0;
  int64_t announced_due_ms_ = kNever;
};

}  // namespace kvcast::stream
