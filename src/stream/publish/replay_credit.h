// ReplayCredit: counts the replies that one replay client has not read yet, and decides whether
// more replies may be sent to the client.
//
// A ROUTER socket with a high-water mark can drop replies silently, so the publisher sets none.
// Instead, this class bounds the memory of the replies to a client that does not read.
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

// The replay thread charges the replies. A reply is refunded on the thread on which ZeroMQ releases
// it.
class ReplayCredit {
 public:
  // `wake` is called on the thread of the refund that ends a pause.
  ReplayCredit(const CreditLimits& limits, std::function<void()> wake)
      : limits_(limits), wake_(std::move(wake)) {}

  // Charges one reply. The charge is refunded when the returned object is destroyed.
  static std::shared_ptr<void> Charge(std::shared_ptr<ReplayCredit> credit, size_t bytes);

  // True: one more reply of any size may be sent.
  bool available() const { return replies_ < limits_.replies && bytes_ < limits_.bytes; }
  bool idle() const { return replies_ == 0; }
  // Requests a call of `wake` when half of the limits is free. False: half is free already, and
  // `wake` is not called.
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
