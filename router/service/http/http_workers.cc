// SPDX-License-Identifier: Apache-2.0
#include "router/service/http/http_workers.h"

#include <utility>

namespace kvcast::router {

HttpWorkers::HttpWorkers(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

void HttpWorkers::Post(Job job) {
  {
    const MutexLock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void HttpWorkers::Run() {
  while (true) {
    Job job;
    {
      const MutexLock lock(mutex_);
      while (jobs_.empty() && !stopping_) wake_.wait(mutex_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

void HttpWorkers::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace kvcast::router
