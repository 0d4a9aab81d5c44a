// SendLoop: the thread that sends the batches of one or more publishers.
//
// It polls the rings of the publishers one after the other. Between two passes it waits for a short
// time (PollBackoff). A wake-up for each batch would cost the engine's thread more than all other
// work of Publish.
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
  // Starts the thread. Throws std::system_error if the thread cannot start.
  SendLoop();
  ~SendLoop();
  // The shared loop of this process. It ends when its last owner releases it.
  static std::shared_ptr<SendLoop> Shared();

  // After this call, until Remove, only the loop may use `sender`.
  void Add(LiveSender& sender);
  // After this call returns, the loop does not use `sender`. Unsent batches stay unsent.
  void Remove(LiveSender& sender);
  // Must be called after a batch was appended to a ring. It does not wait for the loop. It costs
  // almost nothing, unless the loop had no work for some time (see PollBackoff) and must be woken.
  void Notice() {
    if (asleep_.load(std::memory_order_relaxed)) Wake();
  }
  // As Notice, but also for other changes that let a sender send. It costs a lock.
  void Wake();
  // True: the loop sleeps, or makes its last pass before it sleeps.
  bool asleep() const { return asleep_.load(std::memory_order_relaxed); }

 private:
  void Run();
  // Sets `pass` to the senders of the next pass. False: the loop must stop.
  bool BeginPass(std::vector<LiveSender*>& pass);
  void EndPass();
  void Nap(std::chrono::microseconds nap);
  void Sleep();

  // The thread sets the flag, makes one more pass over the rings, and then sleeps. If this pass
  // misses a batch, the producer locked the ring after the pass. The producer then sees the flag in
  // Notice, and wakes the thread.
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
