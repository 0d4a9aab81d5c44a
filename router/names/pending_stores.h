// PendingStores: stores that wait until the block before them is named. Their tokens then name
// their blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/core/event.h"

namespace kvcast::router {

// The stores of one source. Thread-compatible. If there is no room, the oldest store is dropped.
class PendingStores {
 public:
  static constexpr size_t kMaxStores = 4096;
  static constexpr size_t kMaxTokens = size_t{1} << 20;

  bool empty() const { return by_parent_.empty(); }
  // `parent`: a value that is well mixed in all bits, and equal only for equal hashes. REQUIRES:
  // the store has tokens.
  void Park(uint64_t parent, const BlockStored& store);
  // Removes and returns the stores behind that block, in order.
  std::vector<BlockStored> Take(uint64_t parent);
  // Moves the stores of `other` behind the stores of this object.
  void TakeAll(PendingStores& other);
  void Clear();

  uint64_t dropped() const { return dropped_; }  // because there was no room
  size_t size() const { return size_; }

 private:
  struct Parked {
    BlockStored store;
    uint64_t number = 0;
  };

  void DropOldest();
  void DropGone();

  absl::flat_hash_map<uint64_t, std::vector<Parked>> by_parent_;
  // By age: number and parent of each store. Some of these stores were taken.
  std::deque<std::pair<uint64_t, uint64_t>> order_;
  size_t size_ = 0;
  size_t tokens_ = 0;
  uint64_t next_number_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace kvcast::router
