// ReuseFeedback: compares the reuse that one engine reports with the predicted reuse.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvcast::router {

// The class draws two conclusions. Thread-compatible.
//
// The first conclusion uses the moving share of predicted tokens that the engine did not reuse. A
// single answer is often wrong, because events have not arrived yet. If answers stay wrong, the
// worker holds fewer blocks than its events announced.
//
// The second conclusion uses differences that repeat with the same number of tokens. The engine
// then reuses blocks by another rule than the answers assume, so no answer may be exact.
class ReuseFeedback {
 public:
  static constexpr int kMinAnswers = 32;    // fewer answers allow no conclusion
  static constexpr double kMaxShare = 0.1;  // a larger missing share refutes the predictions

  // True: the predictions are refuted. The counts then start again from 0.
  bool Note(int64_t predicted_tokens, int64_t cached_tokens) {
    constexpr double kKeep = 1 - 1.0 / kMinAnswers;
    predicted_ = predicted_ * kKeep + static_cast<double>(std::max<int64_t>(predicted_tokens, 0));
    missing_ = missing_ * kKeep +
               static_cast<double>(std::max<int64_t>(predicted_tokens - cached_tokens, 0));
    if (++answers_ < kMinAnswers || missing_ <= predicted_ * kMaxShare) return false;
    predicted_ = missing_ = 0;
    answers_ = 0;
    return true;
  }
  static constexpr size_t kCompared = 10;  // number of latest answers that are compared
  // This number of equal differences among the latest kCompared answers is a contradiction.
  static constexpr size_t kEqual = 3;
  // This number of consecutive answers without a difference ends the contradiction.
  static constexpr int kAgreeing = 100;

  // Call for an answer that was exact, or would have been exact without the contradiction.
  // `difference`: reused tokens minus predicted tokens.
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
  // The repeated difference; nullopt: none.
  std::optional<int64_t> contradiction() const { return contradiction_; }

  // Missing tokens divided by predicted tokens, both as moving sums over the answers. A missing
  // token was predicted, but the engine did not reuse it. 0: nothing was predicted.
  double missing_share() const { return predicted_ > 0 ? missing_ / predicted_ : 0; }

 private:
  double predicted_ = 0;
  double missing_ = 0;
  int64_t answers_ = 0;
  std::array<int64_t, kCompared> last_{};  // differences; ring buffer
  size_t compared_ = 0;                    // number of differences ever recorded
  std::optional<int64_t> contradiction_;
  int agreeing_ = 0;  // with a contradiction: consecutive answers without a difference
};

}  // namespace kvcast::router
