// EpochDomain: readers that take no lock, and memory that is freed once none of them can see it.
//
// A reader pins the domain while it follows pointers. A writer unlinks an object, so that no later
// reader finds it, and retires it; it is freed when every reader that was pinned then has left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvcast {

class EpochDomain {
 public:
  // Any thread; not to be held for long, since nothing is freed meanwhile. Readers beyond kSlots at
  // once wait for one of the others to leave.
  class Pin {
   public:
    explicit Pin(const EpochDomain& domain);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    std::atomic<uint64_t>* slot_;
  };

  EpochDomain() = default;
  // REQUIRES: nobody is pinned. Frees all that is retired.
  ~EpochDomain();
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  // What frees an object: called with the two values given to Retire.
  using Free = void (*)(void* context, uintptr_t object);
  // REQUIRES: the object is unlinked. One thread at a time, as for Collect. `free` must not retire.
  void Retire(Free free, void* context, uintptr_t object);
  // Frees what no reader can see any more. Retire does so now and then.
  void Collect();

 private:
  static constexpr size_t kSlots = 128;
  static constexpr uint64_t kIdle = 0;
  struct alignas(64) Slot {
    std::atomic<uint64_t> epoch{kIdle};
  };
  struct Retired {
    uint64_t epoch;
    Free free;
    void* context;
    uintptr_t object;
  };

  // The epoch at which the longest pinned reader entered.
  uint64_t Oldest();

  mutable std::array<Slot, kSlots> slots_;
  std::atomic<uint64_t> epoch_{1};
  std::vector<Retired> retired_;  // by epoch
  size_t collect_at_ = 64;
};

}  // namespace kvcast
