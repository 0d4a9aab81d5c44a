// Writer: a thread that keeps applying events to an index whose caches are full.
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

  // Continues with the turns: as fast as possible (rate 0), or at so many block operations per
  // second.
  void Start(double rate);
  // Stops after the current turn. Returns the average rate since Start, in block operations per
  // second.
  double Stop();
  // The first turn that is not fully applied. Any thread may call it.
  uint64_t turn() const { return turn_.load(std::memory_order_acquire); }

 private:
  void Run(double rate);

  const Churn& churn_;
  PrefixIndex& index_;
  std::atomic<uint64_t> turn_;
  std::atomic<bool> stopping_ = false;
  double reached_ = 0;  // only the thread uses it, until the thread has ended
  std::thread thread_;
};

}  // namespace kvcast::bench
