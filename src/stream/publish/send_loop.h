// SendLoop: the thread that sends what publishers publish.
//
// It looks at the ring of each in turn and naps in between. To be woken by each batch would cost
// the engine's thread more than all the rest of Publish.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/stream/publish/live_sender.h"

namespace kvcast::stream {

// Thread-safe.
class SendLoop {
 public:
  // Starts the thread. Throws std::system_error if none can start.
  SendLoop();
  ~SendLoop();
  // The one of this process: it ends with the last who holds it.
  static std::shared_ptr<SendLoop> Shared();

  // From now on until Remove, `sender` is the loop's.
  void Add(LiveSender& sender);
  // When it returns, the loop has done with it. What is unsent stays so.
  void Remove(LiveSender& sender);
  // To be called after something was appended to a ring. Waits for nobody, and costs next to
  // nothing unless the loop has had no work for some time (NapPlan).
  void Notice() {
    if (asleep_.load(std::memory_order_relaxed)) Wake();
  }

 private:
  void Run();
  // The senders of the next pass; false: stop.
  bool BeginPass(std::vector<LiveSender*>& pass);
  void EndPass();
  void Nap(std::chrono::microseconds nap);
  void Sleep();
  void Wake();

  // Set before the pass that is the last one before sleeping: what that pass does not see was
  // appended after it looked, under the ring's lock, by one who then sees the flag.
  std::atomic<bool> asleep_{false};

  Mutex mutex_;
  CondVar wake_;
  CondVar pass_ended_;
  std::vector<LiveSender*> senders_ KV_GUARDED_BY(mutex_);
  uint64_t passes_ended_ KV_GUARDED_BY(mutex_) = 0;
  bool passing_ KV_GUARDED_BY(mutex_) = false;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kvcast::stream
