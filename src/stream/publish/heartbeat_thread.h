// HeartbeatThread: a thread that calls PublisherCore::Tick of one publisher every kTickMs. If a
// tick has published a batch, the thread notifies the sending thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "src/base/mutex.h"
#include "src/stream/publish/publisher_core.h"
#include "src/stream/publish/send_loop.h"

namespace kvcast::stream {

class HeartbeatThread {
 public:
  // Both arguments must outlive this object. Throws std::system_error if the thread cannot start.
  HeartbeatThread(PublisherCore& core, SendLoop& loop);
  ~HeartbeatThread();

 private:
  void Run();
  // Waits for the next tick. False: the thread must stop.
  bool Wait();

  PublisherCore& core_;
  SendLoop& loop_;
  Mutex mutex_;
  CondVar stopped_;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kvcast::stream
