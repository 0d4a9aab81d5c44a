// SlotPool: the free slots of host memory, and the slots of each chunk.
//
// A chunk holds a chain of slots, linked in one array. A chain has as few runs of adjacent slots as
// possible, even after long use of the memory. So the copies of a job are few and large.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/base/check.h"
#include "src/offload/manager/free_runs.h"

namespace kvcast::offload {

inline constexpr uint32_t kNoSlot = UINT32_MAX;

class SlotPool {
 public:
  // last_first: the pool first takes the slots that were never used. After these slots, it takes
  // the slots that were given back last, as vLLM does.
  explicit SlotPool(uint32_t num_slots, bool last_first = false)
      : num_slots_(num_slots), last_first_(last_first) {}

  int64_t num_slots() const { return num_slots_; }
  int64_t num_used_once() const { return static_cast<int64_t>(next_.size()); }
  int64_t num_free() const { return num_free_; }
  // The number of slots that Take can give: slots that were given back, and slots never used.
  int64_t num_available() const { return num_free_ + num_slots() - num_used_once(); }

  // Announces that the next `count` taken slots belong to one job. REQUIRES: 0 <= count <=
  // num_available(); all announced slots of earlier calls have been taken.
  void Announce(int64_t count) {
    KV_CHECK(announced_ == 0 && count <= num_available());
    announced_ = static_cast<uint32_t>(count);
  }
  // Returns the first slot of a new chain of `count` slots. REQUIRES: 0 < count <= announced.
  uint32_t Take(int64_t count) {
    KV_CHECK(count > 0 && count <= int64_t{announced_});
    const uint32_t first = TakeOne();
    for (uint32_t last = first; --count > 0; last = next_[last]) next_[last] = TakeOne();
    return first;
  }
  // Gives a chain of slots back.
  void Release(uint32_t first) {
    if (last_first_) return ReleaseLastFirst(first);
    while (first != kNoSlot) {
      SlotRun run{first, 0};
      for (; first == run.first + run.count; first = next_[first]) ++run.count;
      num_free_ += run.count;
      Give(run);
    }
  }
  void Clear() {
    next_.clear();
    free_runs_.Clear();
    given_ = {};
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
    free_runs_.ForEach(visit);
    for (uint32_t i = 0; i < given_.count; ++i) visit(given_.first + i);
  }

 private:
  uint32_t TakeOne() {
    uint32_t slot = free_;
    if (!last_first_) {
      if (run_.count == 0) StartRun();
      slot = run_.first++;
      --run_.count;
    } else if (num_used_once() < num_slots()) {
      slot = FirstUse(1);
    } else {
      free_ = next_[slot];
      --num_free_;
    }
    next_[slot] = kNoSlot;
    --announced_;
    return slot;
  }
  // Joins neighbouring runs before they are added to free_runs_. This works often, because chunks
  // that are evicted together were mostly stored together.
  void Give(SlotRun run) {
    if (given_.count > 0 && run.first + run.count == given_.first) {
      given_ = {run.first, run.count + given_.count};
    } else if (given_.count > 0 && given_.first + given_.count == run.first) {
      given_.count += run.count;
    } else {
      AddGivenRun();
      given_ = run;
    }
  }
  void AddGivenRun() {
    if (given_.count > 0) free_runs_.Add(given_);
    given_ = {};
  }
  // The slots that were never used count as one run, at the end of the memory.
  void StartRun() {
    AddGivenRun();
    const auto unused = static_cast<uint32_t>(num_slots() - num_used_once());
    const uint32_t given_back = free_runs_.RunLengthFor(announced_);
    if (given_back < announced_ && unused > given_back) {
      run_.count = std::min(unused, announced_);
      run_.first = FirstUse(run_.count);
      return;
    }
    run_ = free_runs_.Take(announced_);
    num_free_ -= run_.count;
  }
  uint32_t FirstUse(uint32_t count) {
    const auto first = static_cast<uint32_t>(next_.size());
    next_.resize(next_.size() + count, kNoSlot);
    return first;
  }
  void ReleaseLastFirst(uint32_t first) {
    uint32_t last = first;
    for (++num_free_; next_[last] != kNoSlot; ++num_free_) last = next_[last];
    next_[last] = free_;
    free_ = first;
  }

  uint32_t num_slots_;
  bool last_first_;
  std::vector<uint32_t> next_;  // by slot: the next slot of its chain
  int64_t num_free_ = 0;
  uint32_t announced_ = 0;  // announced slots that are not taken yet
  FreeRuns free_runs_;
  SlotRun given_;            // the run given back last, which is not in free_runs_ yet
  SlotRun run_;              // the slots that are being taken
  uint32_t free_ = kNoSlot;  // last_first: the free slots, as a chain
};

}  // namespace kvcast::offload
