// ReclaimDomain: readers take no lock, and memory is freed when no reader can access it.
//
// A reader pins the domain while it follows pointers. A writer unlinks an object, so that no later
// reader finds it, and then retires the object. When every reader that was pinned at that time has
// left, a later Retire or Collect frees the object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvcast {

class ReclaimDomain {
 public:
  // Any thread may pin. A thread must not hold a pin for long, because the objects that are retired
  // during a pin stay in memory until the pin ends. If kSlots readers are pinned, a further reader
  // waits until another reader leaves.
  class Pin {
   public:
    explicit Pin(const ReclaimDomain& domain);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    std::atomic<uint64_t>* slot_;
  };

  ReclaimDomain() = default;
  // REQUIRES: no thread is pinned. Frees all retired objects.
  ~ReclaimDomain();
  ReclaimDomain(const ReclaimDomain&) = delete;
  ReclaimDomain& operator=(const ReclaimDomain&) = delete;

  // The type of a function that frees an object. Its arguments are the two values that the caller
  // gave to Retire.
  using Free = void (*)(void* context, uintptr_t object);
  // REQUIRES: the object is unlinked. Only one thread at a time may call Retire or Collect. `free`
  // must not call Retire or Collect.
  void Retire(Free free, void* context, uintptr_t object);
  // Frees the objects that no reader can access. Retire also calls it from time to time.
  void Collect();

 private:
  static constexpr size_t kSlots = 128;
  static constexpr uint64_t kIdle = 0;
  struct alignas(64) Slot {
    std::atomic<uint64_t> time{kIdle};
  };
  struct Retired {
    uint64_t time;
    Free free;
    void* context;
    uintptr_t object;
  };

  // Advances the time. Returns the time at which the longest pinned reader entered; the new time if
  // no reader is pinned.
  uint64_t Oldest();

  mutable std::array<Slot, kSlots> slots_;
  std::atomic<uint64_t> time_{1};  // counts calls of Oldest
  std::vector<Retired> retired_;   // in the order of their times
  size_t collect_at_ = 64;
};

}  // namespace kvcast
