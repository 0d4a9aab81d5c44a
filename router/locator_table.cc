// SPDX-License-Identifier: Apache-2.0
#include "router/locator_table.h"

#include <algorithm>
#include <new>

#include "src/base/check.h"

namespace kvcast::router {
namespace {

// Of the entries that fit, in thousandths. Fuller, and too many lookups go on to a second bucket.
constexpr uint64_t kMost = 720;
constexpr uint64_t kLeast = 360;           // below, a shard shrinks,
constexpr uint64_t kAfterShrinking = 600;  // to be no fuller than that

// Buckets up to which a shard is in pieces of 2 KiB, and of 16 KiB.
constexpr uint32_t kSmallPieces = 2048;
constexpr uint32_t kMiddlePieces = 16384;

}  // namespace

LocatorTable::~LocatorTable() {
  Shard* const shards = shards_.load(std::memory_order_relaxed);
  if (shards == nullptr) return;
  for (size_t i = 0; i < kShards; ++i) {
    const Array* const array = shards[i].array.load(std::memory_order_relaxed);
    if (array != nullptr) FreeArray(&arena_, reinterpret_cast<uintptr_t>(array));
  }
  delete[] shards;
}

// Pieces grow with the shard, so that their list stays short: 2, 16 and 128 KiB.
uint32_t LocatorTable::PieceBits(uint32_t size) {
  if (size <= kSmallPieces) return 5;
  return size <= kMiddlePieces ? 8 : 11;
}

// The next size: an eighth more, in whole pieces.
uint32_t LocatorTable::Larger(uint32_t size) {
  if (size < 32) return size + std::max<uint32_t>(1, std::bit_floor(size) / 4);
  uint32_t larger = size + size / 8 + (size < 256 ? 16 : 0);
  // The largest size with small pieces is not passed over.
  for (const uint32_t edge : {kSmallPieces, kMiddlePieces}) {
    if (size < edge && larger > edge) larger = edge;
  }
  const uint32_t piece = 1u << PieceBits(larger);
  return (larger + piece - 1) / piece * piece;
}

const LocatorTable::Array* LocatorTable::NewArray(uint32_t size) {
  const uint32_t piece_bits = PieceBits(size);
  const uint32_t pieces = ((size - 1) >> piece_bits) + 1;
  auto* const array = new (arena_.Allocate(sizeof(Array) + (pieces - 1) * sizeof(Bucket*)))
      Array{.size = size, .piece_bits = piece_bits, .pieces = {}};
  const uint32_t buckets = std::min(size, 1u << piece_bits);
  for (uint32_t i = 0; i < pieces; ++i) {
    array->pieces[i] = new (arena_.Allocate(buckets * sizeof(Bucket))) Bucket[buckets];
  }
  return array;
}

void LocatorTable::FreeArray(void* arena, uintptr_t array) {
  auto* const freed = reinterpret_cast<Array*>(array);
  for (uint32_t i = 0; i < freed->count(); ++i) {
    static_cast<SlabArena*>(arena)->Free(freed->pieces[i]);
  }
  static_cast<SlabArena*>(arena)->Free(freed);
}

// The counts go up before the entry is there: a reader that sees it will find the way.
void LocatorTable::Put(const Array& array, uint64_t entry) {
  for (uint64_t b = HomeOf(entry >> kLocatorBits, array.size);;) {
    Bucket& bucket = array.at(b);
    const uint32_t free = bucket.WithFingerprint(0);
    if (free != 0) {
      bucket.entries[static_cast<size_t>(std::countr_zero(free))].store(entry,
                                                                        std::memory_order_release);
      return;
    }
    bucket.passed.store(bucket.passed.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
    if (++b == array.size) b = 0;
  }
}

void LocatorTable::Resize(Shard& shard, uint32_t size) {
  const Array* const old = shard.array.load(std::memory_order_relaxed);
  const Array* const array = NewArray(size);
  for (uint32_t b = 0; old != nullptr && b < old->size; ++b) {
    for (const std::atomic<uint64_t>& slot : old->at(b).entries) {
      const uint64_t entry = slot.load(std::memory_order_relaxed);
      if (entry != 0) Put(*array, entry);
    }
  }
  shard.array.store(array, std::memory_order_release);
  if (old != nullptr) epochs_.Retire(FreeArray, &arena_, reinterpret_cast<uintptr_t>(old));
}

void LocatorTable::Insert(uint64_t hash, Locator locator) {
  KV_CHECK(locator != 0 && locator >> kLocatorBits == 0);
  Shard* shards = shards_.load(std::memory_order_relaxed);
  if (shards == nullptr) {
    shards = new Shard[kShards];
    shards_.store(shards, std::memory_order_release);
  }
  Shard& shard = shards[ShardOf(hash)];
  const Array* const array = shard.array.load(std::memory_order_relaxed);
  if (array == nullptr) {
    Resize(shard, 1);
  } else if (shard.entries * 1000 >= uint64_t{array->size} * kEntries * kMost) {
    Resize(shard, Larger(array->size));
  }
  Put(*shard.array.load(std::memory_order_relaxed), FingerprintOf(hash) << kLocatorBits | locator);
  ++shard.entries;
  ++size_;
}

// The place of the entry. With `unpass` the buckets before it are no longer passed by it.
std::atomic<uint64_t>& LocatorTable::EntryOf(uint64_t hash, uint64_t entry, bool unpass) {
  const Array& array =
      *shards_.load(std::memory_order_relaxed)[ShardOf(hash)].array.load(std::memory_order_relaxed);
  uint64_t b = HomeOf(FingerprintOf(hash), array.size);
  for (uint64_t looked = 0; looked < array.size; ++looked) {
    Bucket& bucket = array.at(b);
    for (uint32_t mask = bucket.WithFingerprint(entry >> kLocatorBits); mask != 0;
         mask &= mask - 1) {
      std::atomic<uint64_t>& slot = bucket.entries[static_cast<size_t>(std::countr_zero(mask))];
      if (slot.load(std::memory_order_relaxed) == entry) return slot;
    }
    if (unpass) {
      bucket.passed.store(bucket.passed.load(std::memory_order_relaxed) - 1,
                          std::memory_order_release);
    }
    if (++b == array.size) b = 0;
  }
  KV_CHECK(false && "no such entry");
  __builtin_unreachable();
}

void LocatorTable::Erase(uint64_t hash, Locator locator) {
  const uint64_t entry = FingerprintOf(hash) << kLocatorBits | locator;
  EntryOf(hash, entry, true).store(0, std::memory_order_release);
  Shard& shard = shards_.load(std::memory_order_relaxed)[ShardOf(hash)];
  --shard.entries;
  --size_;
  const uint32_t size = shard.array.load(std::memory_order_relaxed)->size;
  if (size < 8 || shard.entries * 1000 >= uint64_t{size} * kEntries * kLeast) return;
  uint32_t smaller = 1;
  while (shard.entries * 1000 > uint64_t{smaller} * kEntries * kAfterShrinking) {
    smaller = Larger(smaller);
  }
  Resize(shard, smaller);
}

void LocatorTable::Replace(uint64_t hash, Locator locator, Locator by) {
  KV_CHECK(by != 0 && by >> kLocatorBits == 0);
  const uint64_t high = FingerprintOf(hash) << kLocatorBits;
  EntryOf(hash, high | locator, false).store(high | by, std::memory_order_release);
}

}  // namespace kvcast::router
