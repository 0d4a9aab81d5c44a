// NewcomerBudget: the share of the socket thread's time for newcomers. A newcomer is a connection
// that has got no reply, or only error replies. Clients that only connect, or send bytes that are
// no request, then cannot take the time of the other connections.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvcast {

// Thread-compatible. All times are in microseconds of one monotonic clock.
class NewcomerBudget {
 public:
  static constexpr int64_t kShare = 2;      // newcomers get 1/kShare of the time
  static constexpr int64_t kMostUs = 2000;  // the most time that is saved for later
  // The most time that one piece of work can cost. If the work takes longer, other threads ran in
  // between, and their time must not reduce the share of newcomers.
  static constexpr int64_t kMostSpentUs = 500;

  bool HasTime(int64_t now_us) {
    left_us_ = std::min(kMostUs, left_us_ + std::max<int64_t>(now_us - latest_us_, 0) / kShare);
    latest_us_ = now_us;
    return left_us_ > 0;
  }
  // True: at least half of the greatest saved time is left, so newcomers did not need their share.
  bool HasSpareTime(int64_t now_us) { return HasTime(now_us) && left_us_ >= kMostUs / 2; }
  void Spend(int64_t used_us) { left_us_ -= std::clamp<int64_t>(used_us, 1, kMostSpentUs); }

 private:
  int64_t left_us_ = kMostUs;  // below 0: the latest work took longer than the time that was left
  int64_t latest_us_ = 0;
};

}  // namespace kvcast
