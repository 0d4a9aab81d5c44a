// SlowTimes: the times at which the processors of the machine were slower than usual.
//
// The host of a virtual machine can slow all its processors for about 10 to 100 ms: the host limits
// their clock, or gives them to another machine. /proc/stat does not show such a slow time. A delay
// that is measured at a slow time says nothing about the measured program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "apps/support/samples.h"

namespace kvcast::bench {

// One measurement of the speed of a processor.
struct SpeedSample {
  double begin = 0;    // seconds of the steady clock (SteadyNow())
  double seconds = 0;  // CPU time of a fixed amount of arithmetic
};

// One measured delay.
struct TimedDelay {
  double begin = 0;  // seconds of the steady clock
  float seconds = 0;
};

class SlowTimes {
 public:
  // A sample is slow if it took more than the median multiplied by this factor.
  static constexpr double kSlowFactor = 1.3;
  // If the share of slow times is greater, Overlaps returns false for all times, so AtFullSpeed
  // leaves out no delay. Otherwise AtFullSpeed could leave out all delays, and a figure without
  // delays would meet each target.
  static constexpr double kMostShare = 0.75;

  // No time is slow.
  SlowTimes() = default;
  // `samples`: in the order of time. A slow time begins at the last sample before slow samples. Its
  // first half ends at the first sample after the slow samples. Its second half has the same
  // length: in this half, a program handles the work that has waited.
  explicit SlowTimes(std::span<const SpeedSample> samples);

  // Slow times, divided by the time from the first to the last sample. From 0 to 1.
  double share() const { return share_; }
  // True if a slow time and the time from `begin` to `end` have a common part. O(log slow times).
  bool Overlaps(double begin, double end) const;
  // Returns the delays, in seconds, that overlap no slow time.
  Samples AtFullSpeed(std::span<const TimedDelay> delays) const;

 private:
  struct Interval {
    double begin = 0;
    double end = 0;
  };

  std::vector<Interval> slow_;  // disjoint, in the order of time
  double share_ = 0;
};

}  // namespace kvcast::bench
