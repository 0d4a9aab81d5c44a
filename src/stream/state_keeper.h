// StateKeeper: the thread that keeps a publisher's state near its ring, publishes events that
// wait for too long, and sends heartbeats when the producer is silent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "src/base/mutex.h"
#include "src/stream/publisher_state.h"
#include "src/stream/replay_ring.h"

namespace kvcast::stream {

class StateKeeper {
 public:
  // Looks at the ring this often: the producer's call has no part in it.
  static constexpr int64_t kPeriodMs = 20;

  // `state` nullptr: there is none. `flush` is called each period, `heartbeat` is called after each
  // `heartbeat_ms` (0: never) without a batch. `ring` and `state` must outlive it. Throws
  // std::system_error if no thread can start.
  StateKeeper(const ReplayRing& ring, PublisherState* state, int64_t heartbeat_ms,
              std::function<void()> flush, std::function<void()> heartbeat);
  ~StateKeeper();

 private:
  void Run();
  // False: stop.
  bool Wait();

  const ReplayRing& ring_;
  PublisherState* const state_;
  const int64_t heartbeat_ms_;
  const std::function<void()> flush_;
  const std::function<void()> heartbeat_;
  Mutex mutex_;
  CondVar stopped_;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kvcast::stream
