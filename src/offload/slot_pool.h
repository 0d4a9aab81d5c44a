// SlotPool: which slots of host memory are free, and which belong together.
//
// A chunk holds a chain of slots, threaded through one array, and so are the free ones: taking and
// giving back is O(1) per slot and allocates nothing but the first use of a slot.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/check.h"

namespace kvcast::offload {

inline constexpr uint32_t kNoSlot = UINT32_MAX;

class SlotPool {
 public:
  explicit SlotPool(uint32_t num_slots) : num_slots_(num_slots) {}

  int64_t num_slots() const { return num_slots_; }
  int64_t num_used_once() const { return static_cast<int64_t>(next_.size()); }
  int64_t num_free() const { return num_free_; }
  // What Take can give: slots given back, and those never used.
  int64_t num_available() const { return num_free_ + num_slots() - num_used_once(); }

  // The first slot of a new chain of `count` slots: never used ones in ascending order, then those
  // given back last. REQUIRES: 0 < count <= num_available().
  uint32_t Take(int64_t count) {
    KV_CHECK(count > 0 && count <= num_available());
    const uint32_t first = TakeOne();
    for (uint32_t last = first; --count > 0; last = next_[last]) next_[last] = TakeOne();
    return first;
  }
  // Gives a chain back; its slots will be taken in the same order.
  void Release(uint32_t first) {
    uint32_t last = first;
    for (++num_free_; next_[last] != kNoSlot; ++num_free_) last = next_[last];
    next_[last] = free_;
    free_ = first;
  }
  void Clear() {
    next_.clear();
    free_ = kNoSlot;
    num_free_ = 0;
  }

  // Calls `visit` with every slot of a chain.
  template <typename Visit>
  void ForEach(uint32_t first, const Visit& visit) const {
    for (uint32_t slot = first; slot != kNoSlot; slot = next_[slot]) visit(slot);
  }
  template <typename Visit>
  void ForEachFree(const Visit& visit) const {
    ForEach(free_, visit);
  }

 private:
  uint32_t TakeOne() {
    uint32_t slot = free_;
    if (num_used_once() < num_slots()) {
      slot = static_cast<uint32_t>(next_.size());
      next_.push_back(kNoSlot);
    } else {
      free_ = next_[slot];
      --num_free_;
    }
    next_[slot] = kNoSlot;
    return slot;
  }

  uint32_t num_slots_;
  std::vector<uint32_t> next_;  // by slot: the next one of its chain
  uint32_t free_ = kNoSlot;
  int64_t num_free_ = 0;
};

}  // namespace kvcast::offload
