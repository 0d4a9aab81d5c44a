// ReuseFeedback: what engines say that they really reused, against what was promised.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvcast::router {

// A sliding share of the promised tokens that were not there. Single answers are often wrong, by
// events on their way; a worker whose answers stay wrong holds less than its events said.
// Thread-compatible.
class ReuseFeedback {
 public:
  static constexpr int kMinAnswers = 32;  // before anything is concluded
  static constexpr double kMaxShare = 0.1;

  // True: the promises are refuted. Begins anew then.
  bool Note(int64_t promised_tokens, int64_t cached_tokens) {
    constexpr double kKeep = 1 - 1.0 / kMinAnswers;
    promised_ = promised_ * kKeep + static_cast<double>(std::max<int64_t>(promised_tokens, 0));
    missing_ = missing_ * kKeep +
               static_cast<double>(std::max<int64_t>(promised_tokens - cached_tokens, 0));
    if (++answers_ < kMinAnswers || missing_ <= promised_ * kMaxShare) return false;
    *this = ReuseFeedback();
    return true;
  }
  // Of the last answers; 0 if nothing was promised.
  double missing_share() const { return promised_ > 0 ? missing_ / promised_ : 0; }

 private:
  double promised_ = 0;
  double missing_ = 0;
  int64_t answers_ = 0;
};

}  // namespace kvcast::router
