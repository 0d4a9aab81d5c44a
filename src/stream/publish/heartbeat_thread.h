// HeartbeatThread: the thread that calls a publisher's PublisherCore::Tick in time and tells the
// sending thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "src/base/mutex.h"
#include "src/stream/publish/publisher_core.h"
#include "src/stream/publish/send_loop.h"

namespace kvcast::stream {

class HeartbeatThread {
 public:
  // Both must outlive it. Throws std::system_error if no thread can start.
  HeartbeatThread(PublisherCore& core, SendLoop& loop);
  ~HeartbeatThread();

 private:
  void Run();
  // False: stop.
  bool Wait();

  PublisherCore& core_;
  SendLoop& loop_;
  Mutex mutex_;
  CondVar stopped_;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kvcast::stream
