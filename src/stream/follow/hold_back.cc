// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/hold_back.h"

#include <iterator>
#include <utility>

namespace kvcast::stream {

bool HoldBack::Add(const Batch& batch, bool unproven) {
  if (const auto it = held_.find(batch.seq); it != held_.end()) {
    if (unproven || !it->second.unproven) return true;
    Extract(it);
  }
  while (!Fits(batch.payload.size())) {
    if (held_.empty() || held_.rbegin()->first < batch.seq) return false;
    Extract(std::prev(held_.end()));
  }
  held_.emplace(batch.seq, Slot{{batch.payload.begin(), batch.payload.end()}, unproven});
  bytes_ += batch.payload.size();
  unproven_ += unproven;
  return true;
}

HoldBack::Slot HoldBack::Extract(Slots::iterator it) {
  bytes_ -= it->second.payload.size();
  unproven_ -= it->second.unproven;
  return std::move(held_.extract(it).mapped());
}

void HoldBack::Prove() {
  if (unproven_ == 0) return;
  for (auto& [seq, slot] : held_) slot.unproven = false;
  unproven_ = 0;
}

void HoldBack::DropUnproven() {
  for (auto it = held_.begin(); unproven_ > 0;) {
    const auto slot = it++;
    if (slot->second.unproven) Extract(slot);
  }
}

std::optional<Frame> HoldBack::Find(uint64_t seq) const {
  const auto it = held_.find(seq);
  if (it == held_.end()) return std::nullopt;
  return Frame(it->second.payload);
}

std::optional<uint64_t> HoldBack::first_seq() const {
  if (held_.empty()) return std::nullopt;
  return held_.begin()->first;
}

std::optional<HoldBack::Held> HoldBack::Take(uint64_t seq) {
  DropBelow(seq);
  if (held_.empty() || held_.begin()->first != seq) return std::nullopt;
  return Held{seq, std::move(Extract(held_.begin()).payload)};
}

void HoldBack::Clear() {
  held_.clear();
  bytes_ = unproven_ = 0;
}

}  // namespace kvcast::stream
