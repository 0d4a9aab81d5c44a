// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/send_loop.h"

#include <algorithm>

#include "src/base/batch_scheduling.h"
#include "src/base/clock.h"
#include "src/base/weak_singleton.h"
#include "src/stream/net/poll_backoff.h"

namespace kvcast::stream {

std::shared_ptr<SendLoop> SendLoop::Shared() {
  static WeakSingleton<SendLoop> shared;
  return shared.Get([] { return std::make_shared<SendLoop>(); },
                    [](const SendLoop&) { return true; });
}

SendLoop::SendLoop() : thread_([this] { Run(); }) {}

SendLoop::~SendLoop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void SendLoop::Add(LiveSender& sender) {
  MutexLock lock(mutex_);
  senders_.push_back(&sender);
}

void SendLoop::Remove(LiveSender& sender) {
  MutexLock lock(mutex_);
  std::erase(senders_, &sender);
  const uint64_t ended = passes_ended_;
  while (passing_ && passes_ended_ == ended) pass_ended_.Wait(mutex_);
}

void SendLoop::Run() {
  SetBatchScheduling();
  PollBackoff naps;
  std::vector<LiveSender*> pass;
  while (BeginPass(pass)) {
    auto sent = LiveSender::Sent::kNothing;
    for (LiveSender* sender : pass) sent = std::max(sent, sender->Send());
    EndPass();
    if (sent == LiveSender::Sent::kSome) continue;
    if (const auto nap = naps.Next(/*found_work=*/sent != LiveSender::Sent::kNothing)) {
      Nap(*nap);
    } else {
      Sleep();
    }
  }
}

bool SendLoop::BeginPass(std::vector<LiveSender*>& pass) {
  MutexLock lock(mutex_);
  pass = senders_;
  passing_ = !stopping_;
  return passing_;
}

void SendLoop::EndPass() {
  {
    MutexLock lock(mutex_);
    passing_ = false;
    ++passes_ended_;
  }
  pass_ended_.NotifyAll();
}

void SendLoop::Nap(std::chrono::microseconds nap) {
  asleep_.store(false, std::memory_order_relaxed);
  const int64_t until_us = SteadyUs() + nap.count();
  MutexLock lock(mutex_);
  while (!stopping_ && wake_.WaitUntil(mutex_, until_us)) {
  }
}

void SendLoop::Sleep() {
  if (!asleep_.exchange(true, std::memory_order_relaxed)) return;
  MutexLock lock(mutex_);
  while (!stopping_ && asleep_.load(std::memory_order_relaxed)) wake_.Wait(mutex_);
}

void SendLoop::Wake() {
  {
    MutexLock lock(mutex_);
    asleep_.store(false, std::memory_order_relaxed);
  }
  wake_.NotifyOne();
}

}  // namespace kvcast::stream
