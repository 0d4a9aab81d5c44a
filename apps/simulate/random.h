// Random numbers that are equal on every machine: SplitMix64's mixing function of a counter. The
// distributions of the standard library may differ between implementations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "apps/support/mix.h"

namespace kvcast::simulate {

using tools::Mix;

// Mix of two numbers; the order matters.
inline uint64_t Mix(uint64_t a, uint64_t b) { return Mix(Mix(a) + b); }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}

  uint64_t Next() { return Mix(state_++); }
  // Evenly distributed in [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // Evenly distributed in [low, high]. REQUIRES: low <= high.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  // Exponentially distributed with this mean.
  double Exponential(double mean) { return -mean * std::log1p(-Unit()); }

 private:
  uint64_t state_;
};

}  // namespace kvcast::simulate
