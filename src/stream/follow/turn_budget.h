// TurnBudget: the bytes and the time that one turn of a source may take, and the pauses of a source
// whose turns take far more.
//
// One thread works for many sources in turn. A turn ends with the message that reaches a bound, so
// a source can exceed the bounds only by one message. The time of such a slow turn is taken from a
// credit of the source, which grows slowly. A source without credit pauses. Its slow turns then
// take at most a two-hundredth of the thread's time, so fewer than 1 % of the batches of the other
// sources wait for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "src/base/sanitizers.h"

namespace kvcast::stream {

struct TurnLimits {
  int messages = 256;  // > 0
  size_t bytes = size_t{1} << 20;
  int64_t cost_us = 500;
  // A turn with live messages that costs more is slow. Sanitizers make code many times slower.
  int64_t slow_us = kSanitized ? 50'000 : 2500;
  // Returns the CPU time of the thread. Empty: the cost of a turn is not known.
  std::function<int64_t()> now_us;
};

// Thread-compatible.
class TurnBudget {
 public:
  // The credit of a source grows by a kCreditShare-th of the time, up to kCreditUs.
  static constexpr int64_t kCreditShare = 200;
  static constexpr int64_t kCreditUs = 100'000;
  static constexpr int64_t kMaxPauseMs = 60'000;
  // Replies use no credit, because the source requests them, and requests are paced. A snapshot may
  // be large. A turn with replies that costs more than kSlowRepliesUs is followed by a pause of
  // kReplyPauseShare times its cost, which is shorter than the timeout of a request.
  static constexpr int64_t kSlowRepliesUs = 20'000;
  static constexpr int64_t kReplyPauseShare = 19;
  static constexpr int64_t kMaxReplyPauseMs = 1000;

  explicit TurnBudget(const TurnLimits& limits) : limits_(limits) {}

  void Begin() {
    messages_ = 0;
    bytes_ = 0;
    begin_us_ = Now();
  }
  // Counts one message that was handled. False: the turn must end.
  bool Take(size_t bytes) {
    ++messages_;
    bytes_ += bytes;
    return messages_ < limits_.messages && bytes_ < limits_.bytes && cost_us() < limits_.cost_us;
  }
  // Since Begin; 0 if it is not known.
  int64_t cost_us() const { return Now() - begin_us_; }
  static int64_t ReplyPauseMs(int64_t cost_us) {
    if (cost_us <= kSlowRepliesUs) return 0;
    return std::min(kReplyPauseShare * cost_us / 1000, kMaxReplyPauseMs);
  }
  // Takes the cost of live messages from the credit. Returns the pause until there is credit again.
  int64_t Charge(int64_t cost_us, int64_t now_ms) {
    // The clock may have been set back.
    const int64_t passed_ms = std::max<int64_t>(now_ms - charged_ms_, 0);
    charged_ms_ = now_ms;
    credit_us_ = std::min(credit_us_ + passed_ms * 1000 / kCreditShare, kCreditUs);
    if (cost_us <= limits_.slow_us) return 0;
    credit_us_ = std::max(credit_us_ - cost_us, -kMaxPauseMs * 1000 / kCreditShare);
    return std::max<int64_t>(-credit_us_ * kCreditShare / 1000, 0);
  }

 private:
  int64_t Now() const { return limits_.now_us ? limits_.now_us() : 0; }

  const TurnLimits limits_;
  int messages_ = 0;
  size_t bytes_ = 0;
  int64_t begin_us_ = 0;
  int64_t credit_us_ = kCreditUs;
  int64_t charged_ms_ = 0;  // time of the latest Charge
};

}  // namespace kvcast::stream
