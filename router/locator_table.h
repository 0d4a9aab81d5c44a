// LocatorTable: where the key with a hash lies, in 8 bytes a key.
//
// Open addressing over buckets of one cache line: seven entries, each a fingerprint of 28 bits and
// a locator of 36, and a count of the entries that passed this bucket because it was full. An entry
// never moves within its bucket array and a lookup that finds a bucket nobody passed is at its end,
// so readers need no lock: they see every entry that is there for as long as they look. The table
// is cut into shards that grow by a quarter, each at a time of its own, and may hold no key at all:
// whether the key at a locator is the one asked for is the caller's to say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "src/base/epoch.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {

// Not 0; below 2^36.
using Locator = uint64_t;

// One writer at a time. Find and Prefetch: any thread that is pinned in `epochs`, beside the
// writer.
class LocatorTable {
 public:
  LocatorTable(SlabArena& arena, EpochDomain& epochs) : arena_(arena), epochs_(epochs) {}
  ~LocatorTable();
  LocatorTable(const LocatorTable&) = delete;
  LocatorTable& operator=(const LocatorTable&) = delete;

  // The first locator of an entry with this hash for which `is_key(locator)` holds; 0: none.
  // `hash` must be well mixed in all 64 bits.
  template <typename IsKey>
  Locator Find(uint64_t hash, IsKey&& is_key) const;
  // Starts to load what Find of this hash reads first.
  void Prefetch(uint64_t hash) const;

  // Writer. REQUIRES: for Insert no entry with that key is there, for the others it is.
  void Insert(uint64_t hash, Locator locator);
  void Erase(uint64_t hash, Locator locator);
  void Replace(uint64_t hash, Locator locator, Locator by);

  uint64_t size() const { return size_; }  // writer

 private:
  static constexpr int kEntries = 7;
  static constexpr int kLocatorBits = 36;
  static constexpr int kFingerprintBits = 28;
  static constexpr int kShardBits = 12;
  static constexpr size_t kShards = size_t{1} << kShardBits;

  struct alignas(64) Bucket {
    std::array<std::atomic<uint64_t>, kEntries> entries{};  // 0: free
    std::atomic<uint64_t> passed{0};
  };
  struct Shard {
    // A pointer to buckets, and in its low bits which size of kSizes they have; 0: none.
    std::atomic<uint64_t> array{0};
    uint64_t entries = 0;  // writer
  };
  struct Array {
    Bucket* buckets = nullptr;
    uint64_t size = 0;
  };
  // Bucket counts that a shard can have.
  static constexpr size_t kSizeSteps = 64;
  static const std::array<uint32_t, kSizeSteps> kSizes;

  static size_t ShardOf(uint64_t hash) { return hash >> (64 - kShardBits); }
  static uint64_t FingerprintOf(uint64_t hash) {
    return hash >> (64 - kShardBits - kFingerprintBits) & ((uint64_t{1} << kFingerprintBits) - 1);
  }
  static uint64_t HomeOf(uint64_t fingerprint, uint64_t size) {
    return fingerprint * size >> kFingerprintBits;
  }
  static Array ArrayOf(uint64_t word) {
    return {reinterpret_cast<Bucket*>(word & ~uint64_t{63}), kSizes[word & 63]};
  }
  static void Put(const Array& array, uint64_t entry);
  std::atomic<uint64_t>& EntryOf(uint64_t hash, uint64_t entry, bool unpass);
  void Resize(Shard& shard, size_t step);
  static void FreeArray(void* arena, uintptr_t word);

  SlabArena& arena_;
  EpochDomain& epochs_;
  std::atomic<Shard*> shards_{nullptr};  // made at the first insert
  uint64_t size_ = 0;
};

template <typename IsKey>
Locator LocatorTable::Find(uint64_t hash, IsKey&& is_key) const {
  const Shard* const shards = shards_.load(std::memory_order_acquire);
  if (shards == nullptr) return 0;
  const uint64_t word = shards[ShardOf(hash)].array.load(std::memory_order_acquire);
  if (word == 0) return 0;
  const Array array = ArrayOf(word);
  const uint64_t fingerprint = FingerprintOf(hash);
  for (uint64_t b = HomeOf(fingerprint, array.size), looked = 0; looked < array.size; ++looked) {
    const Bucket& bucket = array.buckets[b];
    for (const std::atomic<uint64_t>& slot : bucket.entries) {
      const uint64_t entry = slot.load(std::memory_order_acquire);
      if (entry >> kLocatorBits != fingerprint || entry == 0) continue;
      const Locator locator = entry & ((uint64_t{1} << kLocatorBits) - 1);
      if (is_key(locator)) return locator;
    }
    if (bucket.passed.load(std::memory_order_acquire) == 0) return 0;
    if (++b == array.size) b = 0;
  }
  return 0;
}

inline void LocatorTable::Prefetch(uint64_t hash) const {
  const Shard* const shards = shards_.load(std::memory_order_acquire);
  if (shards == nullptr) return;
  const uint64_t word = shards[ShardOf(hash)].array.load(std::memory_order_acquire);
  if (word == 0) return;
  const Array array = ArrayOf(word);
  __builtin_prefetch(&array.buckets[HomeOf(FingerprintOf(hash), array.size)]);
}

}  // namespace kvcast::router
