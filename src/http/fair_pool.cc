// SPDX-License-Identifier: Apache-2.0
#include "src/http/fair_pool.h"

#include <utility>

namespace kvcast {

FairPool::FairPool(size_t threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

void FairPool::Post(const std::string& client, Job job) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    jobs_.Push(client, std::move(job));
  }
  changed_.NotifyOne();
}

void FairPool::Stop() {
  FairQueue<std::string, Job> dropped;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    std::swap(dropped, jobs_);
  }
  changed_.NotifyAll();
  dropped = {};
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void FairPool::Run() {
  for (;;) {
    Job job;
    {
      const MutexLock lock(mutex_);
      while (jobs_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      job = jobs_.Pop();
    }
    job();
  }
}

}  // namespace kvcast
