// HolderSet: which places hold which keys of a run, as one bitmap a place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "router/index/place_table.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {

// 20 bytes a holder and 8. Made, changed and freed (with the arena's Free) by one writer; read
// beside it. A holder keeps its position. What it holds stands there twice: as readers see it, and
// as it will be once the batch in work is whole.
class HolderSet {
 public:
  static HolderSet* New(SlabArena& arena, uint32_t capacity);

  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  uint32_t capacity() const { return capacity_; }
  PlaceId place(uint32_t i) const { return places()[i]; }
  uint64_t bits(uint32_t i) const { return words()[i].load(std::memory_order_acquire); }

  // Writer.
  uint64_t next(uint32_t i) const { return nexts()[i]; }
  // Where it stands, until the set is freed.
  uint64_t* next_at(uint32_t i) { return &nexts()[i]; }
  // Lets readers see what is next.
  void Publish(uint32_t i) { words()[i].store(nexts()[i], std::memory_order_release); }
  // REQUIRES: size() < capacity().
  void Append(PlaceId place, uint64_t bits, uint64_t next);
  // Position of the place; size(): it is not there.
  uint32_t Find(PlaceId place) const;
  // What is held at all, as readers see it or will.
  uint64_t Union() const;
  // Whether the holder has nothing and will have nothing.
  bool Empty(uint32_t i) const { return nexts()[i] == 0 && bits(i) == 0; }
  uint32_t CountHolders() const;

 private:
  explicit HolderSet(uint32_t capacity) : capacity_(capacity) {}

  std::atomic<uint64_t>* words() { return reinterpret_cast<std::atomic<uint64_t>*>(this + 1); }
  const std::atomic<uint64_t>* words() const {
    return reinterpret_cast<const std::atomic<uint64_t>*>(this + 1);
  }
  uint64_t* nexts() { return reinterpret_cast<uint64_t*>(words() + capacity_); }
  const uint64_t* nexts() const { return reinterpret_cast<const uint64_t*>(words() + capacity_); }
  PlaceId* places() { return reinterpret_cast<PlaceId*>(nexts() + capacity_); }
  const PlaceId* places() const { return reinterpret_cast<const PlaceId*>(nexts() + capacity_); }

  std::atomic<uint32_t> size_{0};
  uint32_t capacity_;
};

}  // namespace kvcast::router
