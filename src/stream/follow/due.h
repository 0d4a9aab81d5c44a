// Sentinels for points in time, in milliseconds of any monotonic clock.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace kvcast::stream {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// "Due now". Half of the minimum, so that adding an interval cannot overflow.
inline constexpr int64_t kAtOnce = std::numeric_limits<int64_t>::min() / 2;

}  // namespace kvcast::stream
