// SPDX-License-Identifier: Apache-2.0
#include "router/names/pending_stores.h"

#include <algorithm>
#include <utility>

namespace kvcast::router {

void PendingStores::Park(uint64_t parent, const BlockStored& store) {
  const size_t tokens = store.token_ids->size();
  if (tokens > kMaxTokens) {
    ++dropped_;
    return;
  }
  std::vector<Parked>& siblings = by_parent_[parent];
  // Groups announce the same blocks one after the other. One of these stores is enough to identify
  // the blocks.
  const bool known = std::any_of(siblings.begin(), siblings.end(), [&](const Parked& other) {
    return other.store.block_hashes == store.block_hashes &&
           other.store.block_size == store.block_size && other.store.token_ids == store.token_ids;
  });
  if (known) return;
  siblings.push_back({store, next_number_});
  order_.emplace_back(next_number_++, parent);
  ++size_;
  tokens_ += tokens;
  while (size_ > kMaxStores || tokens_ > kMaxTokens) DropOldest();
}

std::vector<BlockStored> PendingStores::Take(uint64_t parent) {
  std::vector<BlockStored> stores;
  const auto it = by_parent_.find(parent);
  if (it == by_parent_.end()) return stores;
  for (Parked& parked : it->second) {
    tokens_ -= parked.store.token_ids->size();
    stores.push_back(std::move(parked.store));
  }
  size_ -= stores.size();
  by_parent_.erase(it);
  // order_ still has the entries of the taken stores. A search for them in each call would cost too
  // much. DropGone removes such entries if there are many.
  if (order_.size() > 2 * (size_ + 64)) DropGone();
  return stores;
}

void PendingStores::TakeAll(PendingStores& other) {
  dropped_ += std::exchange(other.dropped_, 0);
  for (const auto& [number, parent] : other.order_) {
    const auto it = other.by_parent_.find(parent);
    if (it == other.by_parent_.end()) continue;
    for (const Parked& parked : it->second) {
      if (parked.number == number) Park(parent, parked.store);
    }
  }
  other.Clear();
}

void PendingStores::DropGone() {
  std::erase_if(order_, [this](const auto& entry) {
    const auto it = by_parent_.find(entry.second);
    return it == by_parent_.end() ||
           std::none_of(it->second.begin(), it->second.end(),
                        [&](const Parked& parked) { return parked.number == entry.first; });
  });
}

void PendingStores::DropOldest() {
  const auto [number, parent] = order_.front();
  order_.pop_front();
  const auto it = by_parent_.find(parent);
  if (it == by_parent_.end()) return;
  std::vector<Parked>& siblings = it->second;
  const auto parked = std::find_if(siblings.begin(), siblings.end(),
                                   [&](const Parked& one) { return one.number == number; });
  if (parked == siblings.end()) return;
  tokens_ -= parked->store.token_ids->size();
  --size_;
  ++dropped_;
  siblings.erase(parked);
  if (siblings.empty()) by_parent_.erase(it);
}

void PendingStores::Clear() {
  by_parent_.clear();
  order_.clear();
  size_ = tokens_ = 0;
}

}  // namespace kvcast::router
