// PollBackoff: the time that a polling thread pauses before it polls again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace kvcast::stream {

// A wake-up costs the producer of work CPU time. Polling costs the producer nothing. A nap is the
// pause between two polls. While the polling thread finds no work, its naps grow. After kAwake
// without work, the thread sleeps until it is woken. An idle process then uses no CPU time.
class PollBackoff {
 public:
  static constexpr std::chrono::microseconds kShortest{100};
  static constexpr std::chrono::microseconds kLongest{500};  // maximum nap
  // Total time of naps without work after which the thread sleeps.
  static constexpr std::chrono::milliseconds kAwake{250};

  // `found_work`: the latest poll found work. Returns the next nap. nullopt: sleep until woken.
  std::optional<std::chrono::microseconds> Next(bool found_work) {
    if (found_work) *this = {};
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
