// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/live_sender.h"

#include <utility>

namespace kvcast::stream {
namespace {

// Maximum number of batches per call of Send, so that the other senders of the thread get their
// turn.
constexpr size_t kTurnBatches = 256;

}  // namespace

LiveSender::LiveSender(Socket pub, std::string topic, ReplayRing& ring, Guard* guard,
                       std::function<bool()> holds)
    : pub_(std::move(pub)),
      guard_(guard),
      topic_(std::move(topic)),
      ring_(ring),
      holds_(std::move(holds)) {}

LiveSender::Sent LiveSender::Send() {
  if (guard_ != nullptr) guard_->HandleWake(pub_);
  if (holds_ && holds_()) return Sent::kNothing;
  size_t sent = 0;
  while (sent < kTurnBatches && ring_.TakeUnsent(kTurnBatches - sent, slice_)) {
    for (const RingEntry& entry : slice_) Send(entry);
    sent += slice_.size();
    slice_.clear();
  }
  if (sent == 0) return Sent::kNothing;
  return sent < kTurnBatches ? Sent::kAll : Sent::kSome;
}

void LiveSender::Send(const RingEntry& entry) {
  const Frame topic(reinterpret_cast<const uint8_t*>(topic_.data()), topic_.size());
  pub_.Send(topic, /*more=*/true);
  pub_.Send(EncodeSeq(entry.seq), /*more=*/true);
  pub_.SendShared(entry.payload, nullptr, /*more=*/false);
}

}  // namespace kvcast::stream
