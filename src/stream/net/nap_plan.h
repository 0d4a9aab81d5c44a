// NapPlan: how long a thread that looks for work rests before it looks again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace kvcast::stream {

// Looking costs whoever makes work nothing, unlike being woken. Naps grow while nothing is found,
// and end in a sleep, so that a silent process costs nothing either.
class NapPlan {
 public:
  static constexpr std::chrono::microseconds kShortest{100};
  static constexpr std::chrono::microseconds kLongest{500};  // what work waits for at most
  static constexpr std::chrono::milliseconds kAwake{250};    // after the last work

  // nullopt: sleep until woken.
  std::optional<std::chrono::microseconds> Next(bool found) {
    if (found) *this = {};
    if (awake_ >= kAwake) return std::nullopt;
    const auto nap = nap_;
    nap_ = std::min(nap_ * 2, kLongest);
    awake_ += nap;
    return nap;
  }

 private:
  std::chrono::microseconds nap_ = kShortest;
  std::chrono::microseconds awake_{0};
};

}  // namespace kvcast::stream
