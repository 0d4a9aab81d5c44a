// FairPool: threads that run jobs. The clients take turns, so the waiting jobs of one client do not
// delay the jobs of another client.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/http/fair_queue.h"

namespace kvcast {

// Thread-safe, except Stop.
class FairPool {
 public:
  using Job = std::function<void()>;

  explicit FairPool(size_t threads);
  ~FairPool() { Stop(); }

  // The jobs of one client begin in the order of the calls. After Stop, `job` is destroyed.
  void Post(const std::string& client, Job job);
  // Returns when the jobs that have begun have ended. The jobs that wait are destroyed.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  FairQueue<std::string, Job> jobs_ KV_GUARDED_BY(mutex_);
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvcast
