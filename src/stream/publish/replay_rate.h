// ReplayRate: limits for the requests of one replay client and for the bytes of its replies.
// TokenBucket: enforces one limit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvcast::stream {

// Limits per second; 0: no limit.
struct ReplayRate {
  // After a pause, a client may use at once the amount that the rate allows in this number of
  // seconds.
  static constexpr double kRequestBurstS = 4;
  static constexpr double kByteBurstS = 1;

  double requests = 0;
  double bytes = 0;
};

// The bucket is full at first. Not thread-safe.
class TokenBucket {
 public:
  static constexpr double kPauseS = 0.05;

  TokenBucket(double per_s, double burst_s) : per_s_(per_s), burst_(per_s * burst_s) {
    tokens_ = burst_;
  }

  // Removes tokens. The number of tokens may become negative, so that an amount larger than the
  // bucket can pass too.
  void Spend(double tokens) { tokens_ -= tokens; }
  // Returns the time from which tokens may be spent, in microseconds of any monotonic clock. If
  // tokens may be spent immediately, the result is not above `now_us`. If the bucket is empty, the
  // result is the time when the bucket will hold the tokens of kPauseS seconds. This pause prevents
  // many short waits.
  int64_t ReadyAt(int64_t now_us) {
    if (per_s_ <= 0) return now_us;
    tokens_ = TokensAt(now_us);
    since_us_ = now_us;
    if (tokens_ > 0) return now_us;
    return now_us + static_cast<int64_t>(std::ceil((kPauseS - tokens_ / per_s_) * 1e6));
  }
  // True: at this time, the bucket is as a new one.
  bool IsFull(int64_t now_us) const { return per_s_ <= 0 || TokensAt(now_us) >= burst_; }

 private:
  double TokensAt(int64_t now_us) const {
    const double passed_s = static_cast<double>(std::max<int64_t>(now_us - since_us_, 0)) * 1e-6;
    return std::min(burst_, tokens_ + passed_s * per_s_);
  }

  const double per_s_;
  const double burst_;
  double tokens_ = 0;
  int64_t since_us_ = 0;
};

}  // namespace kvcast::stream
