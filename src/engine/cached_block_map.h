// CachedBlockMap: maps keys to cached blocks and blocks to keys.
//
// Several blocks may hold one key: two requests that computed the same content keep both blocks.
// One block may hold several keys: the key of the full block, and the keys of prefixes that end
// inside the block. The entry of a block's first key fills one cache line. The index of the entry
// is the block's id. In steady operation, inserts and erases allocate no memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kvcast/core/ids.h"
#include "src/base/huge_pages.h"
#include "src/engine/block_key.h"
#include "src/engine/key_table.h"

namespace kvcast::engine {

class CachedBlockMap {
 public:
  explicit CachedBlockMap(uint32_t num_blocks);

  // The block that was inserted first under the key.
  std::optional<BlockId> Find(const BlockKey& key) const;
  bool Contains(const BlockKey& key, BlockId block) const;
  // Appends the key to the block's keys. True: no other block had the key. REQUIRES: not
  // Contains(key, block).
  bool Insert(const BlockKey& key, BlockId block, int64_t covered_tokens);

  bool HasKeys(BlockId block) const { return first_[block.value].in_use(); }
  // The first key of a block. REQUIRES: HasKeys(block).
  const BlockKey& PrimaryKey(BlockId block) const { return first_[block.value].key; }
  // The prefix length of the first key, in tokens. REQUIRES: HasKeys(block).
  int64_t PrimaryCoveredTokens(BlockId block) const { return first_[block.value].covered_tokens; }

  // Drops all keys of a block, in the order of insertion. Calls `removed(key, last)` for each key;
  // `last` is true if no other block has the key.
  template <typename Removed>
  void RemoveBlock(BlockId block, const Removed& removed);
  // Replaces `from` by `to` under all keys of `from`. REQUIRES: HasKeys(to) is false.
  void MoveKeys(BlockId from, BlockId to);
  void Clear();

  // Prefetch the memory that Insert and Find of a key, or HasKeys of a block, will read.
  void Prefetch(const BlockKey& key) const { table_.Prefetch(HashOf(key)); }
  void Prefetch(BlockId block) const { __builtin_prefetch(&first_[block.value], 1); }

  // The number of distinct keys.
  size_t num_keys() const { return table_.size(); }
  // The number of (key, block) pairs.
  size_t num_entries() const { return num_entries_; }
  // Calls `visit` for every key, with the number of blocks that hold the key, in no particular
  // order.
  void ForEachKey(const std::function<void(const BlockKey&, int64_t copies)>& visit) const;
  // True if the two directions of the map agree.
  bool IsConsistent() const;

 private:
  static constexpr uint32_t kNone = KeyTable::kNone;
  // An entry number without this bit is a block id, and means the first key of that block. An entry
  // number with this bit is an index into more_.
  static constexpr uint32_t kMore = uint32_t{1} << 31;

  // One (key, block) pair. The entries of one key form a list in order of insertion. The entries of
  // one block form another list, also in order of insertion.
  struct alignas(64) Entry {
    BlockKey key;  // an empty digest: the entry is not in use
    BlockId block;
    int64_t covered_tokens = 0;
    uint32_t next_of_key = kNone;
    uint32_t next_of_block = kNone;

    bool in_use() const { return key.digest.size != 0; }
  };
  static_assert(sizeof(Entry) == 64);

  Entry& at(uint32_t number) { return number < kMore ? first_[number] : more_[number - kMore]; }
  const Entry& at(uint32_t number) const {
    return number < kMore ? first_[number] : more_[number - kMore];
  }
  uint32_t* FindFirst(const BlockKey& key) {
    return table_.Find(HashOf(key), [&](uint32_t entry) { return at(entry).key == key; });
  }
  const uint32_t* FindFirst(const BlockKey& key) const {
    return table_.Find(HashOf(key), [&](uint32_t entry) { return at(entry).key == key; });
  }

  uint32_t FindEntry(const BlockKey& key, BlockId block) const;
  uint32_t NewEntry(BlockId block);
  void FreeEntry(uint32_t number);
  // Both functions return whether the key has no other entry.
  bool AppendToKey(uint32_t number);
  bool UnlinkFromKey(uint32_t number);
  void AppendToBlock(uint32_t number);

  KeyTable table_;
  std::vector<Entry, HugePageAllocator<Entry>> first_;  // by block id
  std::vector<Entry> more_;                             // further keys of blocks
  uint32_t first_unused_ = kNone;  // free list in more_, linked through next_of_key
  size_t num_entries_ = 0;
};

template <typename Removed>
void CachedBlockMap::RemoveBlock(BlockId block, const Removed& removed) {
  uint32_t number = HasKeys(block) ? block.value : kNone;
  while (number != kNone) {
    const uint32_t next = at(number).next_of_block;
    const bool last = UnlinkFromKey(number);
    removed(std::as_const(at(number).key), last);
    FreeEntry(number);
    number = next;
  }
}

}  // namespace kvcast::engine
