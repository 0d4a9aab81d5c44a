// ReplayCredit: what one replay client has not read yet, and when it may be sent more.
//
// The ROUTER socket itself has no high-water mark (it would drop silently), so this is the bound on
// the memory that a client which does not read can hold.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "src/stream/waker.h"

namespace kvcast::stream {

// Replies are charged by the replay thread and refunded on whatever thread ZeroMQ releases them.
class ReplayCredit {
 public:
  static constexpr size_t kMaxReplies = 1024;
  static constexpr size_t kMaxBytes = 8u << 20;

  explicit ReplayCredit(std::shared_ptr<Waker> waker) : waker_(std::move(waker)) {}

  // Keeps the charge of one reply until it is destroyed.
  static std::shared_ptr<void> Charge(std::shared_ptr<ReplayCredit> credit, size_t bytes);

  // Whether one more reply may be sent, of any size.
  bool available() const { return replies_ < kMaxReplies && bytes_ < kMaxBytes; }
  bool idle() const { return replies_ == 0; }
  // Asks for a wake-up when half of the bound is free. False: it already is.
  bool PauseUntilHalf();

 private:
  struct Ticket;
  bool half_free() const { return replies_ <= kMaxReplies / 2 && bytes_ <= kMaxBytes / 2; }
  void Refund(size_t bytes);

  const std::shared_ptr<Waker> waker_;
  std::atomic<size_t> replies_{0};
  std::atomic<size_t> bytes_{0};
  std::atomic<bool> paused_{false};
};

}  // namespace kvcast::stream
