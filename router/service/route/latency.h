// LatencyHistogram: durations of calls, for a Prometheus histogram.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kvcast::router {

// Upper bounds of the buckets in seconds. One more bucket counts all longer calls.
inline constexpr std::array kLatencyBounds = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                              0.01,   0.025,   0.05,   0.1,   0.25,   1.0};

// Thread-safe. A reader may see a call in the count before it is in the sum.
class LatencyHistogram {
 public:
  void Note(double seconds) {
    size_t bucket = 0;
    while (bucket < kLatencyBounds.size() && seconds > kLatencyBounds[bucket]) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_us_.fetch_add(static_cast<uint64_t>(seconds * 1e6), std::memory_order_relaxed);
  }
  uint64_t count(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  double sum_seconds() const { return static_cast<double>(sum_us_.load()) * 1e-6; }

 private:
  std::array<std::atomic<uint64_t>, kLatencyBounds.size() + 1> counts_{};
  std::atomic<uint64_t> sum_us_{0};
};

}  // namespace kvcast::router
