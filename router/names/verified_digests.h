// VerifiedDigests: the full digests of verified blocks, found by the integers that events carry.
// The number is bounded; a new digest replaces the oldest one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::router {

class VerifiedDigests {
 public:
  explicit VerifiedDigests(size_t capacity) : capacity_(capacity) {}

  // True if an older digest was dropped for the new digest.
  bool Add(const Digest& digest) {
    const uint64_t key = digest.low64();
    if (!digests_.try_emplace(key, digest).second) return false;
    if (order_.size() < capacity_) {
      order_.push_back(key);
      return false;
    }
    digests_.erase(order_[next_]);
    order_[next_] = key;
    next_ = (next_ + 1) % capacity_;
    return true;
  }
  const Digest* Find(uint64_t low64) const {
    const auto it = digests_.find(low64);
    return it == digests_.end() ? nullptr : &it->second;
  }
  void Clear() {
    digests_.clear();
    order_.clear();
    next_ = 0;
  }

 private:
  size_t capacity_;
  absl::flat_hash_map<uint64_t, Digest> digests_;
  std::vector<uint64_t> order_;  // a ring once it is full
  size_t next_ = 0;
};

}  // namespace kvcast::router
