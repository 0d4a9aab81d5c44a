// HolderSet: which places hold which keys of a chunk, as one bitmap a place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "router/place_table.h"

namespace kvcast::router {

// 12 bytes a holder and 16. Made, changed and freed by one writer; read beside it. A holder keeps
// its position; one whose bits are all 0 holds nothing.
class HolderSet {
 public:
  static HolderSet* New(uint32_t capacity);
  static void Delete(HolderSet* set);

  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  uint32_t capacity() const { return capacity_; }
  PlaceId place(uint32_t i) const { return places()[i]; }
  uint64_t bits(uint32_t i) const { return words()[i].load(std::memory_order_acquire); }

  // Writer.
  void SetBits(uint32_t i, uint64_t bits) { words()[i].store(bits, std::memory_order_release); }
  // REQUIRES: size() < capacity().
  void Append(PlaceId place, uint64_t bits);
  // Position of the place; size(): it is not there.
  uint32_t Find(PlaceId place) const;
  // Whether anybody holds a key of `mask`.
  bool AnyHolds(uint64_t mask) const;
  // What is held at all.
  uint64_t Union() const;
  // Holders with a bit set.
  uint32_t CountHolders() const;

 private:
  explicit HolderSet(uint32_t capacity) : capacity_(capacity) {}

  std::atomic<uint64_t>* words() { return reinterpret_cast<std::atomic<uint64_t>*>(this + 1); }
  const std::atomic<uint64_t>* words() const {
    return reinterpret_cast<const std::atomic<uint64_t>*>(this + 1);
  }
  PlaceId* places() { return reinterpret_cast<PlaceId*>(words() + capacity_); }
  const PlaceId* places() const { return reinterpret_cast<const PlaceId*>(words() + capacity_); }

  std::atomic<uint32_t> size_{0};
  uint32_t capacity_;
};

}  // namespace kvcast::router
