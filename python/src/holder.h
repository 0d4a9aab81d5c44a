// Holder: an object that several Python threads use and one of them closes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "python/src/errors.h"
#include "src/base/mutex.h"

namespace kvcast::python {

// Thread-safe. Close waits until the calls in progress have returned.
template <typename T>
class Holder {
 public:
  // `class_name`: for the text of ClosedError.
  Holder(const char* class_name, std::unique_ptr<T> object)
      : class_name_(class_name), object_(std::move(object)) {}
  ~Holder() {
    if (object_ != nullptr) Close();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  // Calls `work` with the object, without the GIL. ClosedError: the object is closed. Must be
  // called with the GIL held.
  template <typename Work>
  auto Call(Work&& work) {
    std::optional<std::invoke_result_t<Work, T&>> result;
    WithoutGil([&] {
      if (!Enter()) return;
      const Exit exit{*this};
      result.emplace(work(*object_));
    });
    if (!result) ThrowClosed(class_name_);
    return std::move(*result);
  }
  // Like Call. At most one CallAlone runs at a time.
  template <typename Work>
  auto CallAlone(Work&& work) {
    return Call([&](T& object) {
      const MutexLock lock(alone_);
      return work(object);
    });
  }
  // Destroys the object, without the GIL. No-op if it is closed. Must be called with the GIL held.
  void Close() {
    WithoutGil([&] {
      std::unique_ptr<T> closed;
      {
        const MutexLock lock(mutex_);
        closing_ = true;
        while (calls_ > 0) idle_.Wait(mutex_);
        closed = std::move(object_);
      }
    });
  }
  bool closed() {
    const MutexLock lock(mutex_);
    return closing_;
  }

 private:
  struct Exit {
    Holder& holder;
    ~Exit() { holder.Leave(); }
  };
  bool Enter() {
    const MutexLock lock(mutex_);
    if (closing_) return false;
    ++calls_;
    return true;
  }
  void Leave() {
    const MutexLock lock(mutex_);
    if (--calls_ == 0) idle_.NotifyAll();
  }

  const char* const class_name_;
  std::unique_ptr<T> object_;
  Mutex alone_;
  Mutex mutex_;
  CondVar idle_;
  int64_t calls_ KV_GUARDED_BY(mutex_) = 0;
  bool closing_ KV_GUARDED_BY(mutex_) = false;
};

}  // namespace kvcast::python
