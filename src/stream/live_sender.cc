// SPDX-License-Identifier: Apache-2.0
#include "src/stream/live_sender.h"

#include <utility>
#include <vector>

#include "src/base/background.h"

namespace kvcast::stream {
namespace {

// Batches taken from the ring under one lock.
constexpr size_t kSliceBatches = 256;

}  // namespace

LiveSender::LiveSender(Socket pub, std::string topic, ReplayRing& ring)
    : pub_(std::move(pub)), topic_(std::move(topic)), ring_(ring), thread_([this] { Run(); }) {}

void LiveSender::Run() {
  RunInBackground();
  std::vector<RingEntry> slice;
  while (ring_.TakeUnsent(kSliceBatches, slice)) {
    for (const RingEntry& entry : slice) Send(entry);
    slice.clear();
  }
}

void LiveSender::Send(const RingEntry& entry) {
  const Frame topic(reinterpret_cast<const uint8_t*>(topic_.data()), topic_.size());
  pub_.Send(topic, /*more=*/true);
  pub_.Send(EncodeSeq(entry.seq), /*more=*/true);
  pub_.SendShared(entry.payload, nullptr, /*more=*/false);
}

}  // namespace kvcast::stream
