// Numbers that an attacker would choose against a hash table without a secret seed, and the time
// that they cost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "src/base/clock.h"

namespace kvcast::testing {

// 1 to `count`, times `step`.
inline std::vector<uint64_t> Multiples(size_t count, uint64_t step) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 1; i <= count; ++i) numbers.push_back(i * step);
  return numbers;
}
// All numbers have the same low 24 bits and the same high 20 bits. Tables take the bucket from such
// bits of the hash. REQUIRES: count < 2^20.
inline std::vector<uint64_t> EqualEnds(size_t count) { return Multiples(count, uint64_t{1} << 24); }
// In libstdc++, all numbers are in one bucket of a table with 29,000 to 85,000 numbers.
inline std::vector<uint64_t> EqualRemainders(size_t count) {
  return Multiples(count, uint64_t{42043} * 85229);  // bucket counts of libstdc++
}

// The ratio of the CPU times of this thread for `chosen` numbers and for random numbers. Each time
// is the least of three runs.
template <typename Work>  // (const std::vector<uint64_t>& numbers)
double FloodCost(const std::vector<uint64_t>& chosen, Work work) {
  const auto least_ns = [&work](const std::vector<uint64_t>& numbers) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int run = 0; run < 3; ++run) {
      const int64_t begin = ThreadCpuNs();
      work(numbers);
      least = std::min(least, ThreadCpuNs() - begin);
    }
    return static_cast<double>(least);
  };
  std::mt19937_64 random(1);
  std::vector<uint64_t> others(chosen.size());
  for (uint64_t& number : others) number = random();
  return least_ns(chosen) / least_ns(others);
}

}  // namespace kvcast::testing
