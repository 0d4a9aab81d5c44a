// ReuseFeedback: what engines say that they really reused, against what was promised.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvcast::router {

// Two conclusions. A sliding share of the promised tokens that were not there: single answers are
// often wrong, by events on their way; a worker whose answers stay wrong holds less than its events
// said. And differences that repeat to the token: an engine reuses blocks by another rule than the
// answers assume, and no answer may say that it is exact. Thread-compatible.
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
    promised_ = missing_ = 0;
    answers_ = 0;
    return true;
  }
  static constexpr size_t kCompared = 10;  // last answers that are looked at
  static constexpr size_t kEqual = 3;      // of them, with one difference, contradict the answers
  static constexpr int kAgreeing = 100;  // answers without a difference that end the contradiction

  // An answer that was exact, or would have been but for the contradiction. `difference`: reused
  // tokens less promised ones.
  void Compare(int64_t difference) {
    last_[compared_++ % kCompared] = difference;
    if (difference == 0) {
      if (contradiction_ && ++agreeing_ >= kAgreeing) contradiction_.reset();
      return;
    }
    agreeing_ = 0;
    const auto seen = std::min(compared_, kCompared);
    const auto equal = std::count(last_.begin(), last_.begin() + seen, difference);
    if (static_cast<size_t>(equal) >= kEqual) contradiction_ = difference;
  }
  // The difference that repeats; nullopt: none.
  std::optional<int64_t> contradiction() const { return contradiction_; }

  // Of the last answers; 0 if nothing was promised.
  double missing_share() const { return promised_ > 0 ? missing_ / promised_ : 0; }

 private:
  double promised_ = 0;
  double missing_ = 0;
  int64_t answers_ = 0;
  std::array<int64_t, kCompared> last_{};  // differences; a ring
  size_t compared_ = 0;                    // differences that there ever were
  std::optional<int64_t> contradiction_;
  int agreeing_ = 0;  // answers since the last difference
};

}  // namespace kvcast::router
