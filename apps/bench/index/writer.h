// Writer: a thread that keeps applying events to an index, from where its caches are full on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "apps/bench/index/churn.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {

class Writer {
 public:
  // Borrows both.
  Writer(const Churn& churn, PrefixIndex& index);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Goes on with the turns: as fast as it can (rate 0), or at so many block operations per second.
  void Start(double rate);
  // Ends after the turn that is under way. Returns the rate that was reached: block operations per
  // second of all the time.
  double Stop();
  // The first turn that is not applied in full. Any thread.
  uint64_t turn() const { return turn_.load(std::memory_order_acquire); }

 private:
  void Run(double rate);

  const Churn& churn_;
  PrefixIndex& index_;
  std::atomic<uint64_t> turn_;
  std::atomic<bool> stopping_ = false;
  double reached_ = 0;  // the thread's, until it has ended
  std::thread thread_;
};

}  // namespace kvcast::bench
