// WeakSingleton: one object that all callers share. The object exists while at least one caller
// holds it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "src/base/mutex.h"

namespace kvcast {

// Thread-safe.
template <typename T>
class WeakSingleton {
 public:
  // Returns the shared object if it exists and `is_usable(object)` is true. Otherwise returns a new
  // object, which `create()` makes.
  template <typename Create, typename IsUsable>
  std::shared_ptr<T> Get(const Create& create, const IsUsable& is_usable) {
    MutexLock lock(mutex_);
    std::shared_ptr<T> one = one_.lock();
    if (one == nullptr || !is_usable(*one)) {
      one = create();
      one_ = one;
    }
    return one;
  }

 private:
  Mutex mutex_;
  std::weak_ptr<T> one_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast
