// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace kvcast::tools {

// Seconds of the steady clock. All processes of a machine share this clock.
inline double SteadyNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace kvcast::tools
