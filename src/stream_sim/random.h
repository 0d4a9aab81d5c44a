// Random: a small random number generator. A simulation has many generators, so that the draws of
// one part do not change the draws of the other parts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast::sim {

constexpr uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27) * 0x94D049BB133111EB;
  return value ^ value >> 31;
}

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : state_(Mix(seed ^ Mix(stream))) {}

  uint64_t Next() { return Mix(state_++); }
  // In [0, sides). REQUIRES: sides > 0.
  int64_t Roll(int64_t sides) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(sides));
  }
  int64_t Between(int64_t low, int64_t high) { return low + Roll(high - low + 1); }
  bool Percent(int64_t percent) { return Roll(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace kvcast::sim
