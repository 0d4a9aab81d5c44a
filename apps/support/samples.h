// Samples: measurements of one kind, and their quantiles.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace kvcast::bench {

using Clock = std::chrono::steady_clock;

inline double NanosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

class Samples {
 public:
  void Reserve(size_t count) { values_.reserve(count); }
  void Add(double value) { values_.push_back(value); }
  void Add(const Samples& others) {
    values_.insert(values_.end(), others.values_.begin(), others.values_.end());
  }
  size_t size() const { return values_.size(); }
  // Returns the smallest sample s for which at least the share q of all samples is <= s (nearest
  // rank). 0 <= q <= 1. Returns 0 if there are no samples. O(samples).
  double Quantile(double q) const;
  double median() const { return Quantile(0.5); }
  double sum() const;

 private:
  std::vector<double> values_;
};

}  // namespace kvcast::bench
