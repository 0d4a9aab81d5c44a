// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/health_prober.h"

#include <algorithm>
#include <chrono>

#include "apps/bench/service/http_load.h"
#include "apps/support/steady_now.h"

namespace kvcast::tools {

HealthProber::HealthProber(int port, const ForkedProcess& router)
    : port_(port), router_(router), thread_([this] { Run(); }) {}

void HealthProber::Run() {
  while (!stopping_) {
    const double begin = SteadyNow();
    if (HttpGet(port_, "/healthz").ok()) {
      answers_.push_back({begin, static_cast<float>(SteadyNow() - begin)});
    } else {
      ++failed_;
    }
    max_mib_ = std::max(max_mib_, router_.ResidentMiB());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void HealthProber::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

HealthProbes HealthProber::Result(const bench::SlowTimes& slow) const {
  const bench::Samples seconds = slow.AtFullSpeed(answers_);
  return {.answered = answers_.size(),
          .failed = failed_,
          .p99 = seconds.Quantile(0.99),
          .max = seconds.Quantile(1)};
}

}  // namespace kvcast::tools
