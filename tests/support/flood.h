// Numbers that an attacker would choose against a hash table without a secret seed, and the time
// that they cost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/base/clock.h"

namespace kvcast::testing {

// KVCAST_FLOOD_KEYS sets another number of keys, less than 2^20, for a run by hand.
inline size_t FloodKeys(size_t usual) {
  const char* const set = std::getenv("KVCAST_FLOOD_KEYS");
  return set == nullptr ? usual : std::strtoull(set, nullptr, 10);
}

// Returns step, 2 * step, ..., count * step.
inline std::vector<uint64_t> Multiples(size_t count, uint64_t step) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 1; i <= count; ++i) numbers.push_back(i * step);
  return numbers;
}
// All numbers have the same low 24 bits and the same high 20 bits. Tables take the bucket from such
// bits of the hash. REQUIRES: count < 2^20.
inline std::vector<uint64_t> EqualEnds(size_t count) { return Multiples(count, uint64_t{1} << 24); }
// In libstdc++, all numbers are in one bucket of a table that holds all of them or about half of
// them. REQUIRES: count < 2^20.
inline std::vector<uint64_t> EqualRemainders(size_t count) {
  uint64_t buckets = 1;
  uint64_t buckets_before = 1;
  std::unordered_set<uint64_t> table;
  for (uint64_t number = 0; number < count; ++number) {
    table.insert(number);
    if (table.bucket_count() == buckets) continue;
    buckets_before = std::exchange(buckets, table.bucket_count());
  }
  return Multiples(count, buckets * buckets_before);
}

// The ratio of the CPU times of this thread for `chosen` numbers and for random numbers. Each time
// is the shortest of three runs.
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
  const double ratio = least_ns(chosen) / least_ns(others);
  std::printf("%zu chosen keys cost %.2f times as much as random keys\n", chosen.size(), ratio);
  return ratio;
}

}  // namespace kvcast::testing
