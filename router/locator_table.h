// LocatorTable: where the key with a hash lies, in 8 bytes a key.
//
// Open addressing over buckets of one cache line: seven entries, each a fingerprint of 28 bits and
// a locator of 36, and a count of the entries that passed this bucket because it was full. An entry
// never moves within its bucket array and a lookup that finds a bucket nobody passed is at its end,
// so readers need no lock: they see every entry that is there for as long as they look. The table
// is cut into shards, each in pieces of one size, so that a shard grows by an eighth and leaves
// pieces that the next one can use. Whether the key at a locator is the one asked for is the
// caller's to say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

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
  static constexpr int kShardBits = 10;
  static constexpr size_t kShards = size_t{1} << kShardBits;

  struct alignas(64) Bucket {
    std::array<std::atomic<uint64_t>, kEntries> entries{};  // 0: free
    std::atomic<uint64_t> passed{0};

    // Bit i: entry i has that fingerprint; 0 asks for free entries.
    uint32_t WithFingerprint(uint64_t fingerprint) const;
  };
  // The buckets of a shard. Piece i has those from i << piece_bits on.
  struct Array {
    uint32_t size;  // buckets
    uint32_t piece_bits;
    Bucket* pieces[1];  // as many as it has

    Bucket& at(uint64_t bucket) const {
      return pieces[bucket >> piece_bits][bucket & ((uint64_t{1} << piece_bits) - 1)];
    }
    uint32_t count() const { return ((size - 1) >> piece_bits) + 1; }
  };
  struct Shard {
    std::atomic<const Array*> array{nullptr};
    uint64_t entries = 0;  // writer
  };

  static size_t ShardOf(uint64_t hash) { return hash >> (64 - kShardBits); }
  // Not 0, which is that of a free entry.
  static uint64_t FingerprintOf(uint64_t hash) {
    const uint64_t bits =
        hash >> (64 - kShardBits - kFingerprintBits) & ((uint64_t{1} << kFingerprintBits) - 1);
    return bits + (bits == 0);
  }
  static uint64_t HomeOf(uint64_t fingerprint, uint64_t size) {
    return fingerprint * size >> kFingerprintBits;
  }
  static uint32_t PieceBits(uint32_t size);
  static uint32_t Larger(uint32_t size);
  const Array* NewArray(uint32_t size);
  static void FreeArray(void* arena, uintptr_t array);
  static void Put(const Array& array, uint64_t entry);
  std::atomic<uint64_t>& EntryOf(uint64_t hash, uint64_t entry, bool unpass);
  void Resize(Shard& shard, uint32_t size);

  SlabArena& arena_;
  EpochDomain& epochs_;
  std::atomic<Shard*> shards_{nullptr};  // made at the first insert
  uint64_t size_ = 0;
};

inline uint32_t LocatorTable::Bucket::WithFingerprint(uint64_t fingerprint) const {
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
  // Entries are read in halves of 16 bytes. Each is still read at once: x86 does not tear aligned
  // words within a vector. What is found here is read again by itself.
  const auto* const vectors = reinterpret_cast<const __m128i*>(this);
  const auto high_halves = [&](int i) {
    return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(_mm_load_si128(vectors + i)),
                                           _mm_castsi128_ps(_mm_load_si128(vectors + i + 1)),
                                           _MM_SHUFFLE(3, 1, 3, 1)));
  };
  constexpr int kLocatorHigh = kLocatorBits - 32;
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(fingerprint));
  const __m128i first = _mm_cmpeq_epi32(_mm_srli_epi32(high_halves(0), kLocatorHigh), wanted);
  const __m128i second = _mm_cmpeq_epi32(_mm_srli_epi32(high_halves(2), kLocatorHigh), wanted);
  const auto mask = static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(first)) |
                                          _mm_movemask_ps(_mm_castsi128_ps(second)) << 4);
  return mask & ((1u << kEntries) - 1);
#else
  uint32_t mask = 0;
  for (int i = 0; i < kEntries; ++i) {
    const uint64_t entry = entries[static_cast<size_t>(i)].load(std::memory_order_relaxed);
    mask |= static_cast<uint32_t>(entry >> kLocatorBits == fingerprint) << i;
  }
  return mask;
#endif
}

template <typename IsKey>
Locator LocatorTable::Find(uint64_t hash, IsKey&& is_key) const {
  const Shard* const shards = shards_.load(std::memory_order_acquire);
  if (shards == nullptr) return 0;
  const Array* const array = shards[ShardOf(hash)].array.load(std::memory_order_acquire);
  if (array == nullptr) return 0;
  const uint64_t fingerprint = FingerprintOf(hash);
  for (uint64_t b = HomeOf(fingerprint, array->size), looked = 0; looked < array->size; ++looked) {
    const Bucket& bucket = array->at(b);
    for (uint32_t mask = bucket.WithFingerprint(fingerprint); mask != 0; mask &= mask - 1) {
      const uint64_t entry = bucket.entries[static_cast<size_t>(std::countr_zero(mask))].load(
          std::memory_order_acquire);
      const Locator locator = entry & ((uint64_t{1} << kLocatorBits) - 1);
      if (entry >> kLocatorBits == fingerprint && is_key(locator)) return locator;
    }
    if (bucket.passed.load(std::memory_order_acquire) == 0) return 0;
    if (++b == array->size) b = 0;
  }
  return 0;
}

inline void LocatorTable::Prefetch(uint64_t hash) const {
  const Shard* const shards = shards_.load(std::memory_order_acquire);
  if (shards == nullptr) return;
  const Array* const array = shards[ShardOf(hash)].array.load(std::memory_order_acquire);
  if (array == nullptr) return;
  __builtin_prefetch(&array->at(HomeOf(FingerprintOf(hash), array->size)));
}

}  // namespace kvcast::router
