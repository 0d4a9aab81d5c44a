// HolderSet: the holders of the blocks of a run, with one bitmap per holder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "router/index/holder_table.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {

// A set takes 8 bytes for the header and 20 bytes per holder. Three arrays of `capacity` elements
// follow the header (from `this + 1` on): holder ids (4 bytes each, rounded up to 8 bytes), words
// of published bits (8 bytes each), and words of next bits (8 bytes each). The next bits are the
// state after the current batch. Publish copies them to the published bits. Readers use the ids and
// the published bits, which lie together.
//
// Threads: the writer makes, changes and frees a set (with SlabArena::Free). Readers may call size,
// id and bits at the same time. A holder keeps its position as long as the set exists (I7).
class HolderSet {
 public:
  static HolderSet* New(SlabArena& arena, uint32_t capacity);

  uint32_t size() const { return size_.load(std::memory_order_acquire); }  // I7
  uint32_t capacity() const { return capacity_; }
  // Starts to load the header, ids and published bits of a set with a capacity of up to 11.
  static void Prefetch(const HolderSet* set) {
    constexpr size_t kLine = 64;
    for (size_t line = 0; line < 3; ++line) {
      __builtin_prefetch(reinterpret_cast<const char*>(set) + line * kLine);
    }
  }
  HolderId id(uint32_t i) const { return ids()[i]; }
  // True if the first `size` holders of both sets are equal, in the same order. REQUIRES: size() of
  // both sets was at least `size`.
  bool HasIdsOf(const HolderSet& other, uint32_t size) const {
    return this == &other || std::equal(ids(), ids() + size, other.ids());
  }
  // I1, I2
  uint64_t bits(uint32_t i) const { return words()[i].load(std::memory_order_acquire); }

  // The methods below are for the writer only.
  uint64_t next(uint32_t i) const { return nexts()[i]; }
  // Address of the next bits. Valid until the set is freed.
  uint64_t* next_at(uint32_t i) { return &nexts()[i]; }
  // Shows the next bits to readers. I1, I2.
  void Publish(uint32_t i) { words()[i].store(nexts()[i], std::memory_order_release); }
  // REQUIRES: size() < capacity().
  void Append(HolderId id, uint64_t bits, uint64_t next);
  // Returns the position of the holder; size() if the set does not have it.
  uint32_t Find(HolderId id) const;
  // Returns the bits that are set in the published bits or in the next bits of any holder.
  uint64_t Union() const;
  // True if the holder has no published bits and no next bits.
  bool Empty(uint32_t i) const { return nexts()[i] == 0 && bits(i) == 0; }
  uint32_t CountHolders() const;

 private:
  explicit HolderSet(uint32_t capacity) : capacity_(capacity) {}

  static size_t EvenCapacity(uint32_t capacity) { return (size_t{capacity} + 1) & ~size_t{1}; }

  HolderId* ids() { return reinterpret_cast<HolderId*>(this + 1); }
  const HolderId* ids() const { return reinterpret_cast<const HolderId*>(this + 1); }
  std::atomic<uint64_t>* words() {
    return reinterpret_cast<std::atomic<uint64_t>*>(ids() + EvenCapacity(capacity_));
  }
  const std::atomic<uint64_t>* words() const {
    return reinterpret_cast<const std::atomic<uint64_t>*>(ids() + EvenCapacity(capacity_));
  }
  uint64_t* nexts() { return reinterpret_cast<uint64_t*>(words() + capacity_); }
  const uint64_t* nexts() const { return reinterpret_cast<const uint64_t*>(words() + capacity_); }

  // I7
  std::atomic<uint32_t> size_{0};
  uint32_t capacity_;
};

}  // namespace kvcast::router
