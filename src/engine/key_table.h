// KeyTable: an open-addressing table from hashed keys to entries that the caller stores.
//
// A slot has 8 bytes: 32 bits of the key's hash and the entry's number. A probe reads one cache
// line of the table and, if the hash bits match, the entry. The table uses linear probing, and at
// most half of its slots are in use. Erase shifts the following slots back, so deleted slots do not
// accumulate.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/huge_pages.h"

namespace kvcast::engine {

class KeyTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The table has room for `expected` keys, and grows if more keys are inserted.
  explicit KeyTable(size_t expected) { Resize(expected); }

  size_t size() const { return size_; }

  // Prefetches the memory that a Find of this hash will read.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[TagOf(hash) & mask_], 1); }

  // The entry number of a key, for reading and writing. nullptr: the key is not in the table.
  // `is_same(entry)` returns whether an entry has the key.
  template <typename IsSame>
  uint32_t* Find(uint64_t hash, const IsSame& is_same) {
    return const_cast<uint32_t*>(std::as_const(*this).Find(hash, is_same));
  }
  template <typename IsSame>
  const uint32_t* Find(uint64_t hash, const IsSame& is_same) const {
    const uint32_t tag = TagOf(hash);
    for (size_t at = tag & mask_; slots_[at].entry != kNone; at = (at + 1) & mask_) {
      if (slots_[at].tag == tag && is_same(slots_[at].entry)) return &slots_[at].entry;
    }
    return nullptr;
  }

  // REQUIRES: the key is not in the table, entry != kNone.
  void Insert(uint64_t hash, uint32_t entry) {
    if ((size_ + 1) * 2 > slots_.size()) Resize(slots_.size());
    Place({.entry = entry, .tag = TagOf(hash)});
    ++size_;
  }

  // REQUIRES: `found` is a result of Find, and no key was inserted or erased after that Find.
  void Erase(uint32_t* found) {
    auto hole = static_cast<size_t>(reinterpret_cast<Slot*>(found) - slots_.data());
    for (size_t at = (hole + 1) & mask_; slots_[at].entry != kNone; at = (at + 1) & mask_) {
      // An entry may move back to the hole only if the hole is not before the entry's first slot,
      // which its hash selects.
      const size_t distance = (at - (slots_[at].tag & mask_)) & mask_;
      if (distance < ((at - hole) & mask_)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole].entry = kNone;
    --size_;
  }

  void Clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    size_ = 0;
  }

  // Calls `visit` for every entry number, in no particular order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.entry != kNone) visit(slot.entry);
    }
  }

 private:
  struct Slot {
    uint32_t entry = kNone;
    uint32_t tag = 0;
  };

  static uint32_t TagOf(uint64_t hash) {
    return static_cast<uint32_t>((hash * 0x9E3779B97F4A7C15u) >> 32);
  }

  void Place(Slot slot) {
    size_t at = slot.tag & mask_;
    while (slots_[at].entry != kNone) at = (at + 1) & mask_;
    slots_[at] = slot;
  }

  void Resize(size_t expected) {
    std::vector<Slot, HugePageAllocator<Slot>> old(
        std::bit_ceil(std::max<size_t>(expected * 2, 16)));
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.entry != kNone) Place(slot);
    }
  }

  std::vector<Slot, HugePageAllocator<Slot>> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace kvcast::engine
