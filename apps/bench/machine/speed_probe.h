// SpeedProbe: a thread that measures the speed of the processors during a benchmark.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "apps/bench/machine/slow_times.h"

namespace kvcast::bench {

// Every 2 ms, the thread times about 3 µs of integer arithmetic three times, and keeps the shortest
// time. It measures its own CPU time, and uses almost no memory. So waiting for a processor, an
// interrupt, or another thread does not make a sample slow. The thread uses about 0.5 % of a core.
class SpeedProbe {
 public:
  // Starts the thread.
  SpeedProbe();
  ~SpeedProbe() { Stop(); }
  SpeedProbe(const SpeedProbe&) = delete;
  SpeedProbe& operator=(const SpeedProbe&) = delete;

  // Number of samples so far. Any thread may call this.
  size_t samples() const { return count_; }
  // Ends the thread, and returns its samples. A second call returns the same samples.
  const std::vector<SpeedSample>& Stop();

 private:
  void Run();

  std::atomic<bool> stopping_{false};
  std::atomic<size_t> count_{0};
  std::vector<SpeedSample> samples_;  // used by the thread until Stop
  std::thread thread_;
};

}  // namespace kvcast::bench
