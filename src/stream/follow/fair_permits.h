// FairPermits: gives a limited number of permits to callers, in the order of their requests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_set>

#include "src/base/mutex.h"

namespace kvcast::stream {

// Thread-safe.
class FairPermits {
 public:
  // An address that identifies a caller. It is not dereferenced.
  using Caller = const void*;

  // REQUIRES: permits > 0.
  explicit FairPermits(size_t permits) : permits_(permits) {}

  // REQUIRES: the caller has no permit and does not wait. False: the caller waits until Has returns
  // true.
  bool Take(Caller caller) {
    const MutexLock lock(mutex_);
    waiting_.push_back(caller);
    Admit();
    return HasPermit(caller);
  }
  bool Has(Caller caller) const {
    const MutexLock lock(mutex_);
    return HasPermit(caller);
  }
  // True if a caller waits.
  bool IsAwaited() const {
    const MutexLock lock(mutex_);
    return !waiting_.empty();
  }
  // Gives the caller's permit back, or ends its wait.
  void Leave(Caller caller) {
    const MutexLock lock(mutex_);
    if (taken_.erase(caller) == 0) std::erase(waiting_, caller);
    Admit();
  }

 private:
  bool HasPermit(Caller caller) const KV_REQUIRES(mutex_) { return taken_.contains(caller); }
  void Admit() KV_REQUIRES(mutex_) {
    for (; taken_.size() < permits_ && !waiting_.empty(); waiting_.pop_front()) {
      taken_.insert(waiting_.front());
    }
  }

  const size_t permits_;
  mutable Mutex mutex_;
  std::unordered_set<Caller> taken_ KV_GUARDED_BY(mutex_);
  std::deque<Caller> waiting_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::stream
