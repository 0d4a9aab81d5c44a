// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/reuse_filter.h"

namespace kvcast::offload {

ReuseFilter::ReuseFilter(int64_t threshold, int64_t max_keys, bool once_per_request)
    : threshold_(threshold),
      max_keys_(static_cast<size_t>(max_keys)),
      once_per_request_(once_per_request),
      nodes_(1) {}

void ReuseFilter::Count(const OffloadKey& key, OffloadRequestId request) {
  if (active() && MayCount(key, request) && !Raise(key)) Add(key, {});
}

void ReuseFilter::CountOffer(std::span<const OffloadKey> keys, OffloadRequestId request) {
  if (!active()) return;
  const Keys offered(keys.begin(), keys.end());
  std::vector<OffloadKey> added;
  for (const OffloadKey& key : keys) {
    if (MayCount(key, request) && !Raise(key)) added.push_back(key);
  }
  for (const OffloadKey& key : added) {
    if (!by_key_.contains(key)) Add(key, offered);
  }
}

bool ReuseFilter::MayCount(const OffloadKey& key, OffloadRequestId request) {
  return !once_per_request_ || counted_[request].insert(key).second;
}

bool ReuseFilter::Raise(const OffloadKey& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  ++nodes_[found->second].count;
  Unlink(found->second);
  LinkNewest(found->second);
  return true;
}

void ReuseFilter::Add(const OffloadKey& key, const Keys& kept) {
  const uint32_t node = NewNode(kept);
  if (node == kEnd) return;
  nodes_[node].key = key;
  nodes_[node].count = 1;
  by_key_.emplace(key, node);
  LinkNewest(node);
}

bool ReuseFilter::Passes(const OffloadKey& key) const {
  if (!active()) return true;
  const auto found = by_key_.find(key);
  return found != by_key_.end() && nodes_[found->second].count >= threshold_;
}

uint32_t ReuseFilter::NewNode(const Keys& kept) {
  if (by_key_.size() < max_keys_) {
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  uint32_t oldest = nodes_[kEnd].next;
  while (oldest != kEnd && kept.contains(nodes_[oldest].key)) oldest = nodes_[oldest].next;
  if (oldest == kEnd) return kEnd;
  by_key_.erase(nodes_[oldest].key);
  Unlink(oldest);
  return oldest;
}

void ReuseFilter::Unlink(uint32_t node) {
  nodes_[nodes_[node].prev].next = nodes_[node].next;
  nodes_[nodes_[node].next].prev = nodes_[node].prev;
}

void ReuseFilter::LinkNewest(uint32_t node) {
  nodes_[node].prev = nodes_[kEnd].prev;
  nodes_[node].next = kEnd;
  nodes_[nodes_[node].prev].next = node;
  nodes_[kEnd].prev = node;
}

std::vector<std::pair<OffloadKey, int64_t>> ReuseFilter::List() const {
  std::vector<std::pair<OffloadKey, int64_t>> list;
  for (uint32_t node = nodes_[kEnd].next; node != kEnd; node = nodes_[node].next) {
    list.emplace_back(nodes_[node].key, nodes_[node].count);
  }
  return list;
}

}  // namespace kvcast::offload
