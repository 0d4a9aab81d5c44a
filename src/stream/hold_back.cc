// SPDX-License-Identifier: Apache-2.0
#include "src/stream/hold_back.h"

#include <iterator>
#include <utility>

namespace kvcast::stream {

bool HoldBack::Add(const Batch& batch) {
  if (held_.contains(batch.seq)) return true;
  while (!Fits(batch.payload.size())) {
    if (held_.empty() || held_.rbegin()->first < batch.seq) return false;
    const auto last = std::prev(held_.end());
    bytes_ -= last->second.size();
    held_.erase(last);
  }
  held_.try_emplace(batch.seq, batch.payload.begin(), batch.payload.end());
  bytes_ += batch.payload.size();
  return true;
}

std::optional<Frame> HoldBack::Find(uint64_t seq) const {
  const auto it = held_.find(seq);
  if (it == held_.end()) return std::nullopt;
  return Frame(it->second);
}

std::optional<uint64_t> HoldBack::first_seq() const {
  if (held_.empty()) return std::nullopt;
  return held_.begin()->first;
}

std::optional<HoldBack::Held> HoldBack::Take(uint64_t seq) {
  while (!held_.empty() && held_.begin()->first <= seq) {
    auto node = held_.extract(held_.begin());
    bytes_ -= node.mapped().size();
    if (node.key() == seq) return Held{seq, std::move(node.mapped())};
  }
  return std::nullopt;
}

void HoldBack::Clear() {
  held_.clear();
  bytes_ = 0;
}

}  // namespace kvcast::stream
