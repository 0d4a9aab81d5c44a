// PollBackoff: the time that a polling thread rests before it polls again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace kvcast::stream {

// A producer of work pays nothing for polling, but it pays for a wake-up. Naps grow while no work
// is found. Then the thread sleeps until it is woken, so a silent process costs nothing either.
class PollBackoff {
 public:
  static constexpr std::chrono::microseconds kShortest{100};
  static constexpr std::chrono::microseconds kLongest{500};  // maximum time that work waits
  // time without work after which the thread sleeps
  static constexpr std::chrono::milliseconds kAwake{250};

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
