// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/machine/speed_probe.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "apps/support/steady_now.h"

namespace kvcast::bench {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(2);
constexpr int kRepetitions = 3;
constexpr int kSteps = 2'500;

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A chain of multiplications: each step needs the result of the step before.
uint64_t Compute(uint64_t value) {
  for (int step = 0; step < kSteps; ++step)
    value = value * 6364136223846793005u + 1442695040888963407u;
  return value;
}

}  // namespace

SpeedProbe::SpeedProbe() : thread_([this] { Run(); }) {}

void SpeedProbe::Run() {
  volatile uint64_t value = 1;  // volatile: the compiler must not remove the computation
  while (!stopping_) {
    SpeedSample sample{.begin = tools::SteadyNow(), .seconds = 1e9};
    for (int i = 0; i < kRepetitions; ++i) {
      const double begin = ThreadCpuSeconds();
      value = Compute(value);
      sample.seconds = std::min(sample.seconds, ThreadCpuSeconds() - begin);
    }
    samples_.push_back(sample);
    ++count_;
    std::this_thread::sleep_for(kPeriod);
  }
}

const std::vector<SpeedSample>& SpeedProbe::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  return samples_;
}

}  // namespace kvcast::bench
