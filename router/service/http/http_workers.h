// HttpWorkers: threads that run handlers, and the queue in front of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "src/base/mutex.h"

namespace kvcast::router {

// The caller bounds the queue: an HTTP connection has one request in it at a time.
class HttpWorkers {
 public:
  using Job = std::function<void()>;

  explicit HttpWorkers(int threads);
  ~HttpWorkers() { Stop(); }
  void Post(Job job);
  // Runs what was posted, then ends. May be called twice.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Job> jobs_ KV_GUARDED_BY(mutex_);
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvcast::router
