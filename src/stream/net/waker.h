// Waker: any thread can use it to end the poll of another thread. Thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kvcast/core/status.h"

namespace kvcast::stream {

class Waker {
 public:
  // Returns a shared object, because the waking threads may outlive the polling thread. Error: no
  // file descriptor is available.
  static Result<std::shared_ptr<Waker>> Create();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Readable from the first Wake until Drain.
  int descriptor() const { return descriptor_; }
  void Wake();
  void Drain();

 private:
  explicit Waker(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

}  // namespace kvcast::stream
