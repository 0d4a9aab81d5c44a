// Waker: lets any thread end the poll of another one. Thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kvcast/core/status.h"

namespace kvcast::stream {

class Waker {
 public:
  // Shared: those who wake may outlive the one who polls. Fails when no descriptor is left.
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
