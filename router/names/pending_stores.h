// PendingStores: stores that wait until the block before them is named. Their tokens then name
// their blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/core/event.h"

namespace kvcast::router {

// The stores of one source. Thread-compatible. If there is no room, the oldest stores are
// dropped. A store with more than kMaxTokens tokens is itself dropped. Each call costs time in
// proportion to the stores that it adds, removes or drops.
class PendingStores {
 public:
  static constexpr size_t kMaxStores = 4096;
  // Maximum number of tokens of all stores together. 8 bytes of other content, for example of extra
  // keys, count as one token.
  static constexpr size_t kMaxTokens = size_t{1} << 20;

  PendingStores() = default;
  PendingStores(const PendingStores&) = delete;
  PendingStores& operator=(const PendingStores&) = delete;

  bool empty() const { return by_parent_.empty(); }
  // Adds a store that waits for the name of its parent block. `parent`: a fingerprint of the
  // parent's hash that is well mixed in all bits, and equal only for equal hashes. Does nothing if
  // a store of the same blocks waits already. REQUIRES: the store has tokens.
  void Park(uint64_t parent, BlockStored store);
  // Removes and returns the stores that wait for this parent, in the order of Park.
  std::vector<BlockStored> Take(uint64_t parent);
  // Moves the stores of `other` into this object. The moved stores come after the stores of this
  // object.
  void TakeAll(PendingStores& other);
  void Clear();

  uint64_t dropped() const { return dropped_; }  // because there was no room
  size_t size() const { return by_age_.size(); }

 private:
  struct Parked;
  using Place = std::list<Parked>::iterator;
  struct Parked {
    BlockStored store;
    uint64_t parent = 0;
    uint64_t fingerprint = 0;  // of the parent, hashes, block size and tokens
    size_t tokens = 0;
    Place next;  // the next store that waits for the same parent; by_age_.end(): none
  };
  // The stores that wait for one parent, from the oldest to the newest.
  struct Siblings {
    Place first;
    Place last;
  };

  void Erase(Place place);
  void DropOldest();

  std::list<Parked> by_age_;
  absl::flat_hash_map<uint64_t, Siblings> by_parent_;
  absl::flat_hash_map<uint64_t, Place> by_fingerprint_;
  size_t tokens_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace kvcast::router
