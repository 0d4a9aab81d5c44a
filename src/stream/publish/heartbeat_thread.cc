// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/heartbeat_thread.h"

#include "src/base/batch_scheduling.h"
#include "src/base/clock.h"

namespace kvcast::stream {

HeartbeatThread::HeartbeatThread(PublisherCore& core, SendLoop& loop)
    : core_(core), loop_(loop), thread_([this] { Run(); }) {}

HeartbeatThread::~HeartbeatThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stopped_.NotifyOne();
  thread_.join();
}

bool HeartbeatThread::Wait() {
  const int64_t until_us = SteadyUs() + PublisherCore::kTickMs * 1000;
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (!stopped_.WaitUntil(mutex_, until_us)) return !stopping_;
  }
  return false;
}

void HeartbeatThread::Run() {
  SetBatchScheduling();
  while (Wait()) {
    const uint64_t before = core_.ring().next_seq();
    core_.Tick();
    if (core_.ring().next_seq() != before) loop_.Notice();
  }
}

}  // namespace kvcast::stream
