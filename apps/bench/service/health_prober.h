// A client of a router's /healthz, like an orchestrator. It also samples the router's memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "apps/bench/machine/slow_times.h"
#include "apps/bench/service/bench_service.h"
#include "apps/support/forked_process.h"

namespace kvcast::tools {

class HealthProber {
 public:
  // Starts the thread. `router` must outlive the prober.
  HealthProber(int port, const ForkedProcess& router);
  ~HealthProber() { Stop(); }
  HealthProber(const HealthProber&) = delete;
  HealthProber& operator=(const HealthProber&) = delete;

  // Waits for the probe in progress.
  void Stop();
  // All probes are counted. The quantiles are of the answers that overlap no slow time. REQUIRES:
  // Stop has returned.
  HealthProbes Result(const bench::SlowTimes& slow) const;
  // REQUIRES: Stop has returned.
  double max_mib() const { return max_mib_; }

 private:
  void Run();

  const int port_;
  const ForkedProcess& router_;
  std::atomic<bool> stopping_{false};
  // Until Stop returns, only thread_ uses the members from here on.
  std::vector<bench::TimedDelay> answers_;
  uint64_t failed_ = 0;
  double max_mib_ = 0;
  std::thread thread_;
};

}  // namespace kvcast::tools
