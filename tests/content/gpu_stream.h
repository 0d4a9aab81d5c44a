// GpuStream: the work that the engine submitted to its device. The work runs in order, some time
// later.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

namespace kvcast::content {

class GpuStream {
 public:
  void Submit(std::function<void()> work) {
    work_.push_back(std::move(work));
    ++submitted_;
  }
  // Returns an event for the end of all submitted work, in the form that CopyBackend::Submit takes.
  void* Event() const { return reinterpret_cast<void*>(submitted_); }

  bool HasReached(void* event) const { return done() >= reinterpret_cast<uintptr_t>(event); }
  bool RunOne() {
    if (work_.empty()) return false;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    work();
    return true;
  }
  void RunUntil(void* event) {
    while (!HasReached(event)) RunOne();
  }
  void RunAll() {
    while (RunOne()) {
    }
  }

 private:
  uintptr_t done() const { return submitted_ - work_.size(); }

  std::deque<std::function<void()>> work_;
  uintptr_t submitted_ = 0;
};

}  // namespace kvcast::content
