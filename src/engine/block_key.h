// BlockKey: the key of a cached block. It has two parts: the hash of the prefix that ends with the
// block, and the group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "kvcast/core/ids.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast::engine {

struct BlockKey {
  Digest digest;
  GroupIdx group;

  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

// Digests are already uniform. The multiplication spreads the group over all bits.
inline size_t HashOf(const BlockKey& key) {
  uint64_t head;
  std::memcpy(&head, key.digest.data.data(), sizeof(head));
  return head ^ ((uint64_t{key.group.value} + 1) * 0x9E3779B97F4A7C15u);
}

}  // namespace kvcast::engine
