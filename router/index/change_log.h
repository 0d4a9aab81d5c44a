// ChangeLog: shows readers which workers have changed since their last query, so that a query need
// not read the versions of all workers.
//
// Numbers such as I1 in comments are the invariants of README.md in this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "router/index/worker_slot.h"

namespace kvcast::router {

// A change makes the version of one worker odd, and then even again. The version of a removed
// worker stays odd. Changes have the numbers 0, 1, ...
//
// Threads: one writer (I0). The const methods may be called by any thread.
class ChangeLog {
 public:
  static constexpr uint64_t kRecent = 64;

  // Must be called before the version of the worker in this slot becomes odd.
  void Begin(WorkerSlot slot) {
    const uint64_t number = begun_.load(std::memory_order_relaxed);   // I0
    slots_[number % kRecent].store(slot, std::memory_order_release);  // I12
    begun_.store(number + 1, std::memory_order_release);              // I12
  }
  // Must be called when every change that began is complete.
  void End() { ended_.store(begun_.load(std::memory_order_relaxed), std::memory_order_release); }

  // The number of changes that have begun.
  uint64_t begun() const { return begun_.load(std::memory_order_acquire); }  // I12
  // Every change with a number below the result has ended.
  uint64_t ended() const { return ended_.load(std::memory_order_acquire); }  // I12
  // Calls `visit(slot)` for each change of the numbers begin to end - 1. False: the log may no
  // longer have all these changes, and `visit` may have been called for other slots. REQUIRES:
  // `end` was returned by begun() or ended().
  template <typename Visit>
  bool ForEach(uint64_t begin, uint64_t end, Visit&& visit) const {
    if (end - begin >= kRecent) return false;
    for (uint64_t number = begin; number < end; ++number) {
      visit(slots_[number % kRecent].load(std::memory_order_acquire));  // I12
    }
    return begun() - begin < kRecent;
  }

 private:
  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> ended_{0};
  std::array<std::atomic<WorkerSlot>, kRecent> slots_{};
};

}  // namespace kvcast::router
