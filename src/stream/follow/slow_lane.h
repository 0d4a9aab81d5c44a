// SlowLane: a thread of a subscriber that works for sources whose messages take long or are large.
// The other sources then do not wait for these messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "kvcast/core/ids.h"
#include "src/base/mutex.h"

namespace kvcast::stream {

// Give, TakeDone, Stop and the destructor must be called by one thread, the owner. IsCaller may be
// called by any thread.
class SlowLane {
 public:
  // `on_done` is called on the lane's thread after each piece of work.
  explicit SlowLane(std::function<void()> on_done) : on_done_(std::move(on_done)) {}
  ~SlowLane() { Stop(); }
  SlowLane(const SlowLane&) = delete;
  SlowLane& operator=(const SlowLane&) = delete;

  // Queues work for a source. The first call starts the thread. False: no thread can start, so the
  // work is not queued. REQUIRES: no work for this source is queued or in progress; Stop was not
  // called.
  bool Give(WorkerId worker, std::function<void()> work);
  // Returns the sources whose work has ended since the last call.
  std::vector<WorkerId> TakeDone();
  // True: the calling thread is the lane's thread.
  bool IsCaller() const { return std::this_thread::get_id() == id_.load(); }
  // Waits for the work in progress. Drops the work that has not begun.
  void Stop();

 private:
  struct Work {
    WorkerId worker;
    std::function<void()> run;
  };
  void Run();

  const std::function<void()> on_done_;
  Mutex mutex_;
  CondVar given_;
  std::deque<Work> queue_ KV_GUARDED_BY(mutex_);
  std::vector<WorkerId> done_ KV_GUARDED_BY(mutex_);
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::atomic<std::thread::id> id_{};
  std::thread thread_;
};

}  // namespace kvcast::stream
