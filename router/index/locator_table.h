// LocatorTable: finds the locators of a hash, in 8 bytes per key.
//
// The table uses open addressing over buckets of one cache line. A bucket has seven entries, each a
// fingerprint of 28 bits and a locator of 36 bits, and 16 counters of 4 bits, one per class of
// fingerprints. A counter has the number of entries of its class that passed the bucket, because
// the bucket was full. If the home bucket of an entry is full, the entry goes to a near bucket that
// its fingerprint selects. If the near bucket is full too, the entry goes to the next following
// bucket with a free entry.
//
// Readers take no lock. An entry never moves within its bucket array, and a lookup ends at a bucket
// whose counter of the fingerprint's class is 0. A reader therefore finds every entry that is in
// the table during the whole lookup (I5). The table is divided into shards. A full shard grows by
// at least a half; a shard of 3, 5 or 7 buckets grows by less. Trim makes a shard smaller if the
// shard has much room and did not grow since the last Trim. Different keys can have equal
// fingerprints, so the caller must compare the key at a locator.
//
// A table may have a filter: one word per bucket, with one bit for each 64th of the fingerprints
// that have the bucket as their home. The filter takes an eighth of the memory of the buckets, and
// excludes 9 of 10 hashes that are not in the table.
//
// Numbers such as I5 in comments are the invariants of README.md in this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <bitset>
#include <cstdint>
#include <vector>

#include "router/index/shard_size.h"
#include "src/base/reclaim_domain.h"
#include "src/base/sanitizers.h"
#include "src/base/slab_arena.h"

#if defined(__SSE2__) && !defined(KVCAST_THREAD_SANITIZER)
#define KVCAST_SSE2
#include <emmintrin.h>
#endif

namespace kvcast::router {

// A number from 1 to 2^36 - 1 by which the caller finds a key.
using Locator = uint64_t;

// Threads: one writer (I0). Find, MayHave, PrefetchPath and Prefetch may be called by any thread
// that holds a Pin of `reclaim`, while the writer works.
class LocatorTable {
 public:
  enum class Filter : bool { kNone, kKept };

  LocatorTable(SlabArena& arena, ReclaimDomain& reclaim, Filter filter = Filter::kNone)
      : arena_(arena), reclaim_(reclaim), has_filter_(filter == Filter::kKept) {}
  ~LocatorTable();
  LocatorTable(const LocatorTable&) = delete;
  LocatorTable& operator=(const LocatorTable&) = delete;

  // A free entry for Insert. Valid until the writer's next call. nullptr: Insert looks for a free
  // entry.
  using Room = std::atomic<uint64_t>*;
  // Returns the first locator of an entry with this hash for which `is_key(locator)` is true; 0:
  // none. All 64 bits of `hash` must be well mixed. `room`, for the writer only: if Find returns 0,
  // Find sets `*room` to the room for an Insert of this hash.
  template <typename IsKey>
  Locator Find(uint64_t hash, IsKey&& is_key, Room* room = nullptr) const;
  // False: no entry has this hash. REQUIRES: the table has a filter.
  bool MayHave(uint64_t hash) const;
  // Prefetch starts to load the memory that Find reads first. PrefetchPath starts to load the
  // memory that Prefetch itself reads. Without PrefetchPath, Prefetch may wait for the pointer to
  // the bucket.
  void PrefetchPath(uint64_t hash) const;
  void Prefetch(uint64_t hash) const;

  // Writer. REQUIRES for Insert: no entry with this hash and locator exists. REQUIRES for Erase and
  // Replace: the entry exists.
  void Insert(uint64_t hash, Locator locator, Room room = nullptr);
  void Erase(uint64_t hash, Locator locator);
  void Replace(uint64_t hash, Locator locator, Locator by);

  // Writer. Makes room for `more` entries in addition to the entries of the table, so that shards
  // grow less often while the entries are inserted.
  void Reserve(uint64_t more);

  // Writer. Makes a shard smaller if it has more room than it needs and did not grow since the last
  // call for this shard. False: the next call would do nothing. Erase never rebuilds a shard,
  // because this takes milliseconds in a large table.
  static constexpr int kShardBits = 9;
  static constexpr size_t kShards = size_t{1} << kShardBits;
  bool Trim(size_t number);

  uint64_t size() const { return size_; }  // writer

 private:
  static constexpr int kEntries = 7;
  static constexpr int kLocatorBits = 36;
  static constexpr int kFingerprintBits = 28;
  static constexpr int kNearBits = 5;  // bits of a fingerprint that select the near bucket

  // The fingerprints of a bucket's entries.
  struct Fingerprints {
#ifdef KVCAST_SSE2
    __m128i first;
    __m128i second;
#else
    std::array<uint32_t, kEntries> each;
#endif
    // Bit i is set if entry i has this fingerprint. Fingerprint 0 finds free entries.
    uint32_t Equal(uint64_t fingerprint) const;
  };
  struct alignas(64) Bucket {
    std::array<std::atomic<uint64_t>, kEntries> entries{};  // I5; 0: free
    std::atomic<uint64_t> passed{0};                        // I5; 16 counters of four bits

    Fingerprints fingerprints() const;
    bool PassedBy(uint64_t fingerprint) const {
      // I2, I5
      return (passed.load(std::memory_order_acquire) >> ClassShift(fingerprint) & kMostPassed) != 0;
    }
    // Writer. A counter that has reached its maximum stays at the maximum. Searches of that class
    // may then visit one more bucket than necessary.
    void Pass(uint64_t fingerprint) { CountPassing(fingerprint, 1); }
    void Unpass(uint64_t fingerprint) { CountPassing(fingerprint, ~uint64_t{0}); }

   private:
    static constexpr uint64_t kMostPassed = 15;
    static int ClassShift(uint64_t fingerprint) {
      return static_cast<int>(fingerprint >> kNearBits & 15) * 4;
    }
    void CountPassing(uint64_t fingerprint, uint64_t change) {
      // I0
      const uint64_t counts = passed.load(std::memory_order_relaxed);
      const int shift = ClassShift(fingerprint);
      if ((counts >> shift & kMostPassed) == kMostPassed) return;
      passed.store(counts + (change << shift), std::memory_order_release);  // I5
    }
  };
  // A shard in one word, which readers load with one load. The low 56 bits are the address of the
  // list of pieces. The highest byte is the index of the size in kShardSizes. The words of all
  // shards take 4 KiB and stay in the L1 cache. A lookup then loads the list of pieces and the
  // bucket.
  class Shard {
   public:
    explicit Shard(uint64_t word) : word_(word) {}
    Shard(Bucket** pieces, size_t size_number);

    uint64_t word() const { return word_; }
    size_t size_number() const { return word_ >> kPointerBits; }
    uint32_t size() const { return kShardSizes[size_number()]; }  // buckets
    Bucket** pieces() const {
      return reinterpret_cast<Bucket**>(word_ & ((uint64_t{1} << kPointerBits) - 1));
    }
    Bucket** piece_of(uint64_t bucket) const { return pieces() + (bucket >> kPieceBits); }
    Bucket& at(uint64_t bucket) const { return (*piece_of(bucket))[bucket & (kPieceBuckets - 1)]; }
    // The filter word of the bucket. REQUIRES: the table has a filter.
    std::atomic<uint64_t>& filter_of(uint64_t bucket) const {
      Bucket* const behind = *piece_of(bucket) + std::min(size(), kPieceBuckets);
      return reinterpret_cast<std::atomic<uint64_t>*>(behind)[bucket & (kPieceBuckets - 1)];
    }

   private:
    static constexpr int kPointerBits = 56;
    uint64_t word_;
  };

  static size_t NumberOf(uint64_t hash) { return hash >> (64 - kShardBits); }
  // The result is not 0, because 0 marks a free entry.
  static uint64_t FingerprintOf(uint64_t hash) {
    const uint64_t bits =
        hash >> (64 - kShardBits - kFingerprintBits) & ((uint64_t{1} << kFingerprintBits) - 1);
    return bits + (bits == 0);
  }
  static uint64_t HomeOf(uint64_t fingerprint, uint64_t size) {
    return fingerprint * size >> kFingerprintBits;
  }
  // The filter bit of the fingerprint. Each of the 64 bits stands for one of 64 equal ranges of the
  // fingerprints with this home.
  static uint64_t FilterBitOf(uint64_t fingerprint, uint64_t size) {
    return uint64_t{1} << ((fingerprint * size >> (kFingerprintBits - 6)) & 63);
  }
  // The buckets of a shard in the order in which Put tries them for a fingerprint: the home bucket;
  // then a near bucket, mostly on the same page; then the buckets behind the near bucket.
  class Path {
   public:
    Path(uint64_t fingerprint, uint32_t size)
        : home_(HomeOf(fingerprint, size)),
          bucket_(home_),
          size_(size),
          fingerprint_(fingerprint) {}

    uint64_t bucket() const { return bucket_; }
    bool at_home() const { return steps_ == 0; }
    // False: all buckets were visited. The path visits no bucket twice.
    bool Advance() {
      if (steps_++ == 0) {
        const uint64_t near = bucket_ ^ ((fingerprint_ & ((1u << kNearBits) - 1)) | 1);
        if (near < size_) {
          bucket_ = near;
          return true;
        }
      }
      Step();
      if (bucket_ == home_) Step();
      return steps_ < size_;
    }

   private:
    void Step() {
      if (++bucket_ == size_) bucket_ = 0;
    }

    uint64_t home_;
    uint64_t bucket_;
    uint32_t size_;
    uint32_t steps_ = 0;
    uint64_t fingerprint_;
  };
  Shard ShardOf(uint64_t hash) const {
    // I5
    return Shard(shards_[NumberOf(hash)].load(std::memory_order_acquire));
  }
  Shard NewShard(size_t size_number);
  static void FreeShard(void* arena, uintptr_t word);
  template <typename Take>
  void EnterBy(Shard shard, uint64_t entry, Take&& take) const;
  void Put(Shard shard, uint64_t entry) const;
  void AddToFilter(Shard shard, uint64_t fingerprint) const;
  void TakeFromFilter(Shard shard, uint64_t fingerprint) const;
  std::atomic<uint64_t>& EntryOf(uint64_t hash, uint64_t entry, bool unpass);
  Shard Resize(size_t number, size_t size_number);

  SlabArena& arena_;
  ReclaimDomain& reclaim_;
  const bool has_filter_;
  // I5
  std::array<std::atomic<uint64_t>, kShards> shards_{};
  std::array<uint32_t, kShards> entries_{};  // writer; entries by shard
  std::bitset<kShards> grown_;               // writer; shards that grew since their last Trim
  std::vector<uint8_t> filled_;              // writer; in Resize: number of entries, by bucket
  uint64_t size_ = 0;
};

#ifdef KVCAST_SSE2
inline LocatorTable::Fingerprints LocatorTable::Bucket::fingerprints() const {
  // Loads of 16 bytes read two entries each. The load of each entry is still atomic, because x86
  // does not split aligned words within a vector. Find loads a matching entry again with acquire
  // (I5).
  const auto* const vectors = reinterpret_cast<const __m128i*>(this);
  const auto high_halves = [&](int i) {
    return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(_mm_load_si128(vectors + i)),
                                           _mm_castsi128_ps(_mm_load_si128(vectors + i + 1)),
                                           _MM_SHUFFLE(3, 1, 3, 1)));
  };
  constexpr int kLocatorHigh = kLocatorBits - 32;
  return {_mm_srli_epi32(high_halves(0), kLocatorHigh),
          _mm_srli_epi32(high_halves(2), kLocatorHigh)};
}

inline uint32_t LocatorTable::Fingerprints::Equal(uint64_t fingerprint) const {
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(fingerprint));
  const int low = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(first, wanted)));
  const int high = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(second, wanted)));
  return static_cast<uint32_t>(low | high << 4) & ((1u << kEntries) - 1);
}
#else
inline LocatorTable::Fingerprints LocatorTable::Bucket::fingerprints() const {
  Fingerprints read;
  for (size_t i = 0; i < kEntries; ++i) {
    read.each[i] =
        // Find loads a matching entry again with acquire (I5).
        static_cast<uint32_t>(entries[i].load(std::memory_order_relaxed) >> kLocatorBits);
  }
  return read;
}

inline uint32_t LocatorTable::Fingerprints::Equal(uint64_t fingerprint) const {
  uint32_t mask = 0;
  for (size_t i = 0; i < kEntries; ++i) {
    mask |= static_cast<uint32_t>(each[i] == fingerprint) << i;
  }
  return mask;
}
#endif

template <typename IsKey>
Locator LocatorTable::Find(uint64_t hash, IsKey&& is_key, Room* room) const {
  const Shard shard = ShardOf(hash);
  const uint64_t fingerprint = FingerprintOf(hash);
  if (shard.size() == 0) return 0;
  for (Path path(fingerprint, shard.size());;) {
    Bucket& bucket = shard.at(path.bucket());
    const Fingerprints fingerprints = bucket.fingerprints();
    for (uint32_t mask = fingerprints.Equal(fingerprint); mask != 0; mask &= mask - 1) {
      // I5
      const uint64_t entry = bucket.entries[static_cast<size_t>(std::countr_zero(mask))].load(
          std::memory_order_acquire);
      const Locator locator = entry & ((uint64_t{1} << kLocatorBits) - 1);
      if (entry >> kLocatorBits == fingerprint && is_key(locator)) return locator;
    }
    if (room != nullptr && path.at_home()) {
      const uint32_t free = fingerprints.Equal(0);
      *room = free == 0 ? nullptr : &bucket.entries[static_cast<size_t>(std::countr_zero(free))];
    }
    if (!bucket.PassedBy(fingerprint) || !path.Advance()) return 0;
  }
}

inline bool LocatorTable::MayHave(uint64_t hash) const {
  const Shard shard = ShardOf(hash);
  if (shard.size() == 0) return false;
  const uint64_t fingerprint = FingerprintOf(hash);
  const uint64_t word =
      // I2, I5
      shard.filter_of(HomeOf(fingerprint, shard.size())).load(std::memory_order_acquire);
  return (word & FilterBitOf(fingerprint, shard.size())) != 0;
}

inline void LocatorTable::PrefetchPath(uint64_t hash) const {
  const Shard shard = ShardOf(hash);
  if (shard.size() > 0)
    __builtin_prefetch(shard.piece_of(HomeOf(FingerprintOf(hash), shard.size())));
}

inline void LocatorTable::Prefetch(uint64_t hash) const {
  const Shard shard = ShardOf(hash);
  if (shard.size() == 0) return;
  Path path(FingerprintOf(hash), shard.size());
  __builtin_prefetch(&shard.at(path.bucket()));
  path.Advance();
  __builtin_prefetch(&shard.at(path.bucket()));
}

}  // namespace kvcast::router
