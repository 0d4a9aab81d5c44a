// ReplayCredit: what one replay client has not read yet, and when it may be sent more.
//
// The ROUTER socket itself has no high-water mark (it would drop silently), so this is the bound on
// the memory that a client which does not read can hold.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace kvcast::stream {

struct CreditLimits {
  size_t replies = 1024;
  size_t bytes = 8u << 20;
};

// Replies are charged by the replay thread and refunded on whatever thread ZeroMQ releases them.
class ReplayCredit {
 public:
  // `wake` is called on the thread of the refund that ends a pause.
  ReplayCredit(const CreditLimits& limits, std::function<void()> wake)
      : limits_(limits), wake_(std::move(wake)) {}

  // Keeps the charge of one reply until it is destroyed.
  static std::shared_ptr<void> Charge(std::shared_ptr<ReplayCredit> credit, size_t bytes);

  // Whether one more reply may be sent, of any size.
  bool available() const { return replies_ < limits_.replies && bytes_ < limits_.bytes; }
  bool idle() const { return replies_ == 0; }
  // Asks for a wake-up when half of the bound is free. False: it already is.
  bool PauseUntilHalf();

 private:
  struct Ticket;
  bool half_free() const { return replies_ <= limits_.replies / 2 && bytes_ <= limits_.bytes / 2; }
  void Refund(size_t bytes);

  const CreditLimits limits_;
  const std::function<void()> wake_;
  std::atomic<size_t> replies_{0};
  std::atomic<size_t> bytes_{0};
  std::atomic<bool> paused_{false};
};

}  // namespace kvcast::stream
