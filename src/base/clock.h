// The clocks of the process: the defaults of every injected clock. Other files of the libraries do
// not read a clock.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace kvcast {

// Time of the steady clock, which is never set back. Its zero has no meaning.
inline int64_t SteadyNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}
inline int64_t SteadyUs() { return SteadyNs() / 1000; }
inline int64_t SteadyMs() { return SteadyNs() / 1000000; }

// CPU time of the calling thread. Its zero has no meaning.
inline int64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
inline int64_t ThreadCpuUs() { return ThreadCpuNs() / 1000; }

// Seconds since 1970. The clock may be set back.
inline double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace kvcast
