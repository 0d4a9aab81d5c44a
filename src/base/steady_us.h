// SteadyUs, SteadyMs: the process's steady clock, the default of every injected clock.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace kvcast {

inline int64_t SteadyUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

inline int64_t SteadyMs() { return SteadyUs() / 1000; }

}  // namespace kvcast
