// Errors: a Status becomes a Python exception.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "kvcast/core/status.h"

namespace kvcast::python {

// All functions below must be called with the GIL held.
[[noreturn]] void Throw(const Status& status);
[[noreturn]] void ThrowType(const std::string& message);     // TypeError
[[noreturn]] void ThrowInvalid(const std::string& message);  // kvcast.InvalidArgumentError
// kvcast.ClosedError. `what`: the name of the class.
[[noreturn]] void ThrowClosed(const char* what);

inline void Check(const Status& status) {
  if (!status.ok()) Throw(status);
}
template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) Throw(result.status());
  return std::move(result).value();
}

// Calls `work` without the GIL. `work` must not use Python objects.
template <typename Work>
auto WithoutGil(Work&& work) {
  const pybind11::gil_scoped_release release;
  return work();
}

}  // namespace kvcast::python
