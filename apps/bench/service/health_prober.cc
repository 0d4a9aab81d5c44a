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
      seconds_.push_back(SteadyNow() - begin);
    } else {
      ++failed_;
    }
    max_mib_ = std::max(max_mib_, router_.ResidentMiB());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

HealthProbes HealthProber::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  std::ranges::sort(seconds_);
  HealthProbes probes{.answered = seconds_.size(), .failed = failed_};
  if (seconds_.empty()) return probes;
  probes.p99 = seconds_[(seconds_.size() - 1) * 99 / 100];
  probes.max = seconds_.back();
  return probes;
}

}  // namespace kvcast::tools
