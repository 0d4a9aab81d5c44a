// CachedBlockMap: which blocks are cached under which keys.
//
// A key may be held by several blocks (two requests that computed the same content keep both), a
// block may hold several keys (a full one and partial ends inside it). Entries are records in a
// free list, so that steady insert and erase traffic allocates nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kvcast/ids.h"
#include "src/engine/block_key.h"

namespace kvcast::engine {

class CachedBlockMap {
 public:
  explicit CachedBlockMap(uint32_t num_blocks);
  ~CachedBlockMap();

  // The block that was inserted first under the key.
  std::optional<BlockId> Find(const BlockKey& key) const;
  bool Contains(const BlockKey& key, BlockId block) const;
  // Appends the key to the block's keys. REQUIRES: not Contains(key, block).
  void Insert(const BlockKey& key, BlockId block, int64_t covered_tokens);

  bool HasKeys(BlockId block) const;
  // The first key of a block. REQUIRES: HasKeys(block).
  const BlockKey& PrimaryKey(BlockId block) const;
  // Prefix length that the first key names. REQUIRES: HasKeys(block).
  int64_t PrimaryCoveredTokens(BlockId block) const;

  // Drops all keys of a block, the first one first; calls `removed` for each.
  void RemoveBlock(BlockId block, const std::function<void(const BlockKey&)>& removed);
  // `to` takes the place of `from` under all of its keys. REQUIRES: HasKeys(to) is false.
  void MoveKeys(BlockId from, BlockId to);
  void Clear();

  // Distinct keys.
  size_t num_keys() const;
  // (key, block) pairs.
  size_t num_entries() const;
  // Calls `visit` for every key with the number of blocks that hold it, in no particular order.
  void ForEachKey(const std::function<void(const BlockKey&, int64_t copies)>& visit) const;
  // True if both directions of the map agree.
  bool IsConsistent() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::engine
