// Writer: a thread that applies events to an index with full caches, until it is stopped.
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
  // `churn` and `index` must outlive the writer.
  Writer(const Churn& churn, PrefixIndex& index);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Starts the thread, which continues with the next turn. `rate`: block operations per second; 0:
  // as fast as possible.
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
  double reached_ = 0;  // the result of Stop; thread_ writes the value before the thread ends
  std::thread thread_;
};

}  // namespace kvcast::bench
