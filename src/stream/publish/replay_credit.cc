// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/replay_credit.h"

#include <utility>

namespace kvcast::stream {

struct ReplayCredit::Ticket {
  Ticket(std::shared_ptr<ReplayCredit> c, size_t n) : credit(std::move(c)), bytes(n) {}
  ~Ticket() { credit->Refund(bytes); }
  const std::shared_ptr<ReplayCredit> credit;
  const size_t bytes;
};

std::shared_ptr<void> ReplayCredit::Charge(std::shared_ptr<ReplayCredit> credit, size_t bytes) {
  credit->bytes_ += bytes;
  ++credit->replies_;
  return std::make_shared<Ticket>(std::move(credit), bytes);
}

bool ReplayCredit::PauseUntilHalf() {
  // The operations are sequentially consistent: either the last refund sees the pause, or this
  // function sees the refund.
  paused_ = true;
  return !(half_free() && paused_.exchange(false));
}

void ReplayCredit::Refund(size_t bytes) {
  bytes_ -= bytes;
  --replies_;
  if (half_free() && paused_.exchange(false)) wake_();
}

}  // namespace kvcast::stream
