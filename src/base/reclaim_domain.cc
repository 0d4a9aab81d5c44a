// SPDX-License-Identifier: Apache-2.0
#include "src/base/reclaim_domain.h"

#include <algorithm>
#include <functional>
#include <thread>

namespace kvcast {

ReclaimDomain::Pin::Pin(const ReclaimDomain& domain) {
  // A thread first tries the slot that it used last.
  static thread_local size_t preferred =
      std::hash<std::thread::id>()(std::this_thread::get_id()) % kSlots;
  for (size_t tries = 1;; ++tries) {
    slot_ = &domain.slots_[preferred].time;
    uint64_t idle = kIdle;
    if (slot_->compare_exchange_strong(idle, domain.time_.load(std::memory_order_acquire),
                                       std::memory_order_acq_rel, std::memory_order_relaxed)) {
      return;
    }
    preferred = (preferred + 1) % kSlots;
    if (tries % kSlots == 0) std::this_thread::yield();
  }
}

ReclaimDomain::Pin::~Pin() { slot_->store(kIdle, std::memory_order_release); }

ReclaimDomain::~ReclaimDomain() {
  for (const Retired& retired : retired_) retired.free(retired.context, retired.object);
}

void ReclaimDomain::Retire(Free free, void* context, uintptr_t object) {
  retired_.push_back({time_.load(std::memory_order_relaxed), free, context, object});
  if (retired_.size() >= collect_at_) Collect();
}

uint64_t ReclaimDomain::Oldest() {
  uint64_t oldest = time_.fetch_add(1, std::memory_order_acq_rel) + 1;
  for (Slot& slot : slots_) {
    // This operation must be a read-modify-write, and not a plain load. All operations on the slot
    // are then in one order. If the reader's exchange is first, this operation returns the reader's
    // time. If this operation is first, the exchange acquires from it, and the reader sees all
    // unlinks before this operation.
    const uint64_t entered = slot.time.fetch_add(0, std::memory_order_acq_rel);
    if (entered != kIdle) oldest = std::min(oldest, entered);
  }
  return oldest;
}

void ReclaimDomain::Collect() {
  const uint64_t oldest = Oldest();
  const auto kept = std::find_if(retired_.begin(), retired_.end(),
                                 [&](const Retired& retired) { return retired.time >= oldest; });
  std::for_each(retired_.begin(), kept,
                [](const Retired& retired) { retired.free(retired.context, retired.object); });
  retired_.erase(retired_.begin(), kept);
  // The next search comes when the list has doubled. If a reader stays pinned, a search after every
  // retired object would cost quadratic time.
  collect_at_ = std::max<size_t>(64, 2 * retired_.size());
}

}  // namespace kvcast
