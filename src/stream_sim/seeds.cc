// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/seeds.h"

#include <atomic>
#include <thread>
#include <vector>

#include "src/base/mutex.h"

namespace kvcast::sim {
namespace {

class Seeds {
 public:
  Seeds(uint64_t first, uint64_t last, uint64_t max_failed)
      : next_(first), last_(last), max_failed_(max_failed) {}

  void Work() {
    for (uint64_t seed = next_++; seed <= last_ && failed_ < max_failed_; seed = next_++) {
      Add(seed, RunPlan(DrawPlan(seed)));
    }
  }
  SeedsResult Take() {
    MutexLock lock(mutex_);
    return result_;
  }

 private:
  void Add(uint64_t seed, const Record& record) {
    MutexLock lock(mutex_);
    ++result_.seeds;
    result_.total.events += record.events;
    result_.total.faults += record.faults;
    for (const auto& [name, times] : record.reached) result_.total.reached[name] += times;
    if (record.violations.empty()) return;
    ++failed_;
    ++result_.failed;
    if (result_.first_failed && *result_.first_failed < seed) return;
    result_.first_failed = seed;
    result_.total.violations = record.violations;
  }

  std::atomic<uint64_t> next_;
  const uint64_t last_;
  const uint64_t max_failed_;
  std::atomic<uint64_t> failed_{0};
  Mutex mutex_;
  SeedsResult result_ KV_GUARDED_BY(mutex_);
};

}  // namespace

SeedsResult RunSeeds(uint64_t first, uint64_t last, int threads, uint64_t max_failed) {
  Seeds seeds(first, last, max_failed);
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back([&seeds] { seeds.Work(); });
  seeds.Work();
  for (std::thread& worker : workers) worker.join();
  return seeds.Take();
}

}  // namespace kvcast::sim
