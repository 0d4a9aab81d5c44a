// Errors: a Status becomes a Python exception.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "kvcast/core/status.h"

namespace kvcast::python {

// All functions below must be called with the GIL held.
[[noreturn]] void Throw(const Status& status);
[[noreturn]] void ThrowType(const std::string& message);     // TypeError
[[noreturn]] void ThrowInvalid(const std::string& message);  // kvcast.InvalidArgumentError
// kvcast.ClosedError.
[[noreturn]] void ThrowClosed(const char* class_name);

inline void Check(const Status& status) {
  if (!status.ok()) Throw(status);
}
template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) Throw(result.status());
  return std::move(result).value();
}

// Releases the GIL during the lifetime of this object. If the interpreter ends meanwhile, the
// destructor never returns in a daemon thread.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      // Before 3.14, CPython ends a daemon thread with pthread_exit, which unwinds the stack like
      // an exception. A destructor must not throw, and the frames above must not touch Python
      // objects without the GIL. So the thread waits until the process ends.
      for (;;) pause();
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

// Calls `work` without the GIL. `work` must not use Python objects.
template <typename Work>
auto WithoutGil(Work&& work) {
  const GilRelease release;
  return work();
}

}  // namespace kvcast::python
