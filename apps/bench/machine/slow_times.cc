// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/machine/slow_times.h"

#include <algorithm>
#include <cstddef>

namespace kvcast::bench {
namespace {

double MedianOf(std::span<const SpeedSample> samples) {
  Samples seconds;
  seconds.Reserve(samples.size());
  for (const SpeedSample& sample : samples) seconds.Add(sample.seconds);
  return seconds.median();
}

}  // namespace

SlowTimes::SlowTimes(std::span<const SpeedSample> samples) {
  if (samples.empty()) return;
  const double most = MedianOf(samples) * kSlowFactor;
  const double end = samples.back().begin;
  double total = 0;
  for (size_t i = 0; i < samples.size();) {
    if (samples[i].seconds <= most) {
      ++i;
      continue;
    }
    const double from = samples[i == 0 ? 0 : i - 1].begin;
    while (i < samples.size() && samples[i].seconds > most) ++i;
    const double to = i < samples.size() ? samples[i].begin : end;
    const double rested = to + (to - from);
    if (!slow_.empty() && from <= slow_.back().end) {
      slow_.back().end = std::max(slow_.back().end, rested);
    } else {
      slow_.push_back({from, rested});
    }
  }
  for (const Interval& slow : slow_) total += std::max(0.0, std::min(slow.end, end) - slow.begin);
  const double measured = end - samples.front().begin;
  if (measured > 0) share_ = total / measured;
  if (share_ > kMostShare) slow_.clear();
}

bool SlowTimes::Overlaps(double begin, double end) const {
  // The first slow time that ends at `begin` or later.
  const auto next = std::ranges::lower_bound(slow_, begin, {}, &Interval::end);
  return next != slow_.end() && next->begin <= end;
}

Samples SlowTimes::AtFullSpeed(std::span<const TimedDelay> delays) const {
  Samples samples;
  samples.Reserve(delays.size());
  for (const TimedDelay& delay : delays) {
    const auto seconds = static_cast<double>(delay.seconds);
    if (!Overlaps(delay.begin, delay.begin + seconds)) samples.Add(seconds);
  }
  return samples;
}

}  // namespace kvcast::bench
