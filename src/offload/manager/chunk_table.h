// ChunkTable: the data of every chunk, found by key, and the lists that order the chunks.
//
// Chunks have numbers. The number of an erased chunk is used again. The table holds the chunks that
// are present, and the evicted chunks that a policy keeps as ghosts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kvcast/offload/offload_manager.h"
#include "src/offload/manager/slot_pool.h"

namespace kvcast::offload {

inline constexpr uint32_t kNoChunk = UINT32_MAX;

class ChunkList;

struct ChunkEntry {
  static constexpr int32_t kAbsent = -2;  // holds no slots
  static constexpr int32_t kStoring = -1;

  OffloadKey key;
  int32_t readers = kAbsent;  // kAbsent, kStoring, or the number of loads in progress
  uint32_t first_slot = kNoSlot;
  uint32_t num_slots = 0;     // slots that the chunk takes when it is present
  uint32_t prev = kNoChunk;   // next older chunk in `list`
  uint32_t next = kNoChunk;   // next newer chunk
  ChunkList* list = nullptr;  // nullptr: in no list
  // Number of the latest PrepareStore call for this chunk. This call must not evict the chunk.
  uint64_t mark = 0;
  // For LRU from v0.32 on: the chunk with the smallest rank is evicted first. Among equal ranks,
  // the chunk at the end of the longest prefix is evicted first.
  uint64_t rank = 0;
  int64_t end = 0;  // tokens of the prefix that ends with the chunk

  bool present() const { return readers != kAbsent; }
};

class ChunkTable {
 public:
  ChunkEntry& operator[](uint32_t chunk) { return entries_[chunk]; }
  const ChunkEntry& operator[](uint32_t chunk) const { return entries_[chunk]; }
  size_t size() const { return by_key_.size(); }

  // kNoChunk: the key is not in the table.
  uint32_t Find(const OffloadKey& key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? kNoChunk : found->second;
  }
  // Returns the chunk of the key. Adds a chunk if the key is not in the table.
  uint32_t FindOrAdd(const OffloadKey& key, uint32_t num_slots) {
    const auto [found, added] = by_key_.try_emplace(key, kNoChunk);
    if (added) found->second = NewEntry(key, num_slots);
    return found->second;
  }
  // REQUIRES: the chunk is in no list and holds no slots.
  void Erase(uint32_t chunk) {
    KV_CHECK(entries_[chunk].list == nullptr && !entries_[chunk].present());
    by_key_.erase(entries_[chunk].key);
    entries_[chunk].next = std::exchange(first_unused_, chunk);
  }
  void Clear() {
    by_key_.clear();
    entries_.clear();
    first_unused_ = kNoChunk;
  }

  // Calls `visit(entry)` for every chunk, in no particular order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [key, chunk] : by_key_) visit(entries_[chunk]);
  }

 private:
  uint32_t NewEntry(const OffloadKey& key, uint32_t num_slots) {
    uint32_t chunk = first_unused_;
    if (chunk == kNoChunk) {
      chunk = static_cast<uint32_t>(entries_.size());
      entries_.emplace_back();
    } else {
      first_unused_ = entries_[chunk].next;
    }
    entries_[chunk] = {.key = key, .num_slots = num_slots};
    return chunk;
  }

  absl::flat_hash_map<OffloadKey, uint32_t> by_key_;
  std::vector<ChunkEntry> entries_;
  uint32_t first_unused_ = kNoChunk;
};

// Chunks from the oldest to the newest. A chunk is in at most one list.
class ChunkList {
 public:
  explicit ChunkList(ChunkTable& table) : table_(table) {}
  ChunkList(const ChunkList&) = delete;
  ChunkList& operator=(const ChunkList&) = delete;

  int64_t size() const { return size_; }
  // The number of slots that the chunks take when they are present.
  int64_t slots() const { return slots_; }
  uint32_t oldest() const { return oldest_; }
  bool Contains(uint32_t chunk) const { return table_[chunk].list == this; }

  // Removes the chunk from its current list, if any, and adds it to this list as the newest chunk.
  void MoveToNewest(uint32_t chunk);
  static void Remove(ChunkTable& table, uint32_t chunk);
  // Empties the list without changes to its chunks. REQUIRES: the caller also clears the table.
  void Clear();

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (uint32_t chunk = oldest_; chunk != kNoChunk; chunk = table_[chunk].next) {
      visit(table_[chunk]);
    }
  }

 private:
  void Unlink(uint32_t chunk);

  ChunkTable& table_;
  uint32_t oldest_ = kNoChunk;
  uint32_t newest_ = kNoChunk;
  int64_t size_ = 0;
  int64_t slots_ = 0;
};

}  // namespace kvcast::offload
