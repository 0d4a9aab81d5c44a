// SPDX-License-Identifier: Apache-2.0
#include "router/index/locator_table.h"

#include <algorithm>
#include <new>

#include "src/base/check.h"

namespace kvcast::router {
namespace {

// Maximum fill of a shard, in thousandths of its entries. Above this fill, too many lookups visit a
// second bucket.
constexpr uint64_t kMost = 720;
// Trim makes a shard smaller if its fill is at most kTrimmed and it did not grow since the last
// Trim. The fill is then at most kAfterTrim.
constexpr uint64_t kTrimmed = 640;
constexpr uint64_t kAfterTrim = 715;
// Maximum fill after Reserve, if each shard gets the same number of entries. The real numbers
// differ by a few percent.
constexpr uint64_t kReserved = 690;
// The size to which a shard grows, rounded down. A shard grows by at least a half, except a shard
// of 3, 5 or 7 buckets, which grows by less. While a table grows, each entry is therefore written
// at most three times on average.
constexpr uint32_t GrownSize(size_t size_number) { return kShardSizes[size_number] / 2 * 3; }

// The number of the smallest size of at least `buckets` buckets.
size_t SizeNumberOf(uint32_t buckets) {
  size_t number = 1;
  while (kShardSizes[number] < buckets) ++number;
  return number;
}

bool Fits(uint64_t entries, uint64_t buckets, uint64_t entries_a_bucket, uint64_t fill) {
  return entries * 1000 <= buckets * entries_a_bucket * fill;
}

// Returns memory that is aligned to a cache line.
void* AllocatePiece(SlabArena& arena, size_t bucket_bytes, size_t filter_bytes) {
  constexpr size_t kLine = 64;
  return arena.Allocate((bucket_bytes + filter_bytes + kLine - 1) / kLine * kLine);
}

}  // namespace

LocatorTable::~LocatorTable() {
  for (const std::atomic<uint64_t>& shard : shards_) {
    FreeShard(&arena_, shard.load(std::memory_order_relaxed));
  }
}

LocatorTable::Shard::Shard(Bucket** pieces, size_t size_number)
    : word_(reinterpret_cast<uintptr_t>(pieces) | uint64_t{size_number} << kPointerBits) {
  KV_CHECK(this->pieces() == pieces);
}

LocatorTable::Shard LocatorTable::NewShard(size_t size_number) {
  KV_CHECK(size_number < kShardSizes.size() && kShardSizes[size_number] > 0);
  const uint32_t size = kShardSizes[size_number];
  const uint32_t buckets = std::min(size, kPieceBuckets);
  auto** const pieces = static_cast<Bucket**>(arena_.Allocate(PiecesOf(size) * sizeof(Bucket*)));
  for (uint32_t i = 0; i < PiecesOf(size); ++i) {
    const size_t filter_bytes = has_filter_ ? buckets * sizeof(uint64_t) : 0;
    pieces[i] = new (AllocatePiece(arena_, buckets * sizeof(Bucket), filter_bytes)) Bucket[buckets];
    if (has_filter_) new (pieces[i] + buckets) std::atomic<uint64_t>[ buckets ]();
  }
  return Shard(pieces, size_number);
}

void LocatorTable::FreeShard(void* arena, uintptr_t word) {
  const Shard shard(word);
  if (shard.size() == 0) return;
  for (uint32_t i = 0; i < PiecesOf(shard.size()); ++i) {
    static_cast<SlabArena*>(arena)->Free(shard.pieces()[i]);
  }
  static_cast<SlabArena*>(arena)->Free(shard.pieces());
}

void LocatorTable::AddToFilter(Shard shard, uint64_t fingerprint) const {
  std::atomic<uint64_t>& word = shard.filter_of(HomeOf(fingerprint, shard.size()));
  // I5
  word.store(word.load(std::memory_order_relaxed) | FilterBitOf(fingerprint, shard.size()),
             std::memory_order_release);
}

// Must be called after an entry was erased. Removes the filter bit of its fingerprint. The bit
// stays if another entry may need the bit.
void LocatorTable::TakeFromFilter(Shard shard, uint64_t fingerprint) const {
  const uint64_t home = HomeOf(fingerprint, shard.size());
  const Bucket& bucket = shard.at(home);
  if (bucket.passed.load(std::memory_order_relaxed) != 0) return;
  uint64_t bits = 0;
  for (const std::atomic<uint64_t>& entry : bucket.entries) {
    const uint64_t other = entry.load(std::memory_order_relaxed) >> kLocatorBits;
    if (other != 0 && HomeOf(other, shard.size()) == home) {
      bits |= FilterBitOf(other, shard.size());
    }
  }
  // I2, I5
  shard.filter_of(home).store(bits, std::memory_order_release);
}

// Enters the entry into the first bucket of its path that has room. `take(bucket, number)` stores
// the entry, or returns false if the bucket is full. I5: sets the filter bit and the counters
// before the entry. A reader that sees the entry therefore also sees its filter bit and its
// counters.
template <typename Take>
void LocatorTable::EnterBy(Shard shard, uint64_t entry, Take&& take) const {
  const uint64_t fingerprint = entry >> kLocatorBits;
  if (has_filter_) AddToFilter(shard, fingerprint);
  for (Path path(fingerprint, shard.size());;) {
    Bucket& bucket = shard.at(path.bucket());
    if (take(bucket, path.bucket())) return;
    bucket.Pass(fingerprint);
    KV_CHECK(path.Advance());
  }
}

void LocatorTable::Put(Shard shard, uint64_t entry) const {
  EnterBy(shard, entry, [entry](Bucket& bucket, uint64_t /*number*/) {
    const uint32_t free = bucket.fingerprints().Equal(0);
    if (free == 0) return false;
    bucket.entries[static_cast<size_t>(std::countr_zero(free))].store(entry,
                                                                      std::memory_order_release);
    return true;
  });
}

LocatorTable::Shard LocatorTable::Resize(size_t number, size_t size_number) {
  // Relaxed loads: I0.
  const Shard old(shards_[number].load(std::memory_order_relaxed));
  const Shard shard = NewShard(size_number);
  filled_.assign(shard.size(), 0);
  for (uint32_t b = 0; b < old.size(); ++b) {
    for (const std::atomic<uint64_t>& slot : old.at(b).entries) {
      const uint64_t entry = slot.load(std::memory_order_relaxed);
      if (entry == 0) continue;
      // No reader sees the new shard yet. Each bucket is filled from its first entry on, so filled_
      // is the position of the next free entry.
      EnterBy(shard, entry, [&](Bucket& bucket, uint64_t to) {
        if (filled_[to] == kEntries) return false;
        bucket.entries[filled_[to]++].store(entry, std::memory_order_relaxed);
        return true;
      });
    }
  }
  shards_[number].store(shard.word(), std::memory_order_release);  // I5
  if (old.size() > 0) {
    reclaim_.Retire(FreeShard, &arena_, old.word());
    // If no reader is pinned, the next shard that grows can take the freed pieces.
    reclaim_.Collect();
  }
  return shard;
}

void LocatorTable::Insert(uint64_t hash, Locator locator, Room room) {
  KV_CHECK(locator != 0 && locator >> kLocatorBits == 0);
  const size_t number = NumberOf(hash);
  Shard shard = ShardOf(hash);
  if (uint64_t{entries_[number]} * 1000 >= uint64_t{shard.size()} * kEntries * kMost) {
    shard = Resize(number,
                   std::max(shard.size_number() + 1, SizeNumberOf(GrownSize(shard.size_number()))));
    grown_.set(number);
    room = nullptr;
  }
  const uint64_t entry = FingerprintOf(hash) << kLocatorBits | locator;
  if (room != nullptr) {
    if (has_filter_) AddToFilter(shard, FingerprintOf(hash));
    room->store(entry, std::memory_order_release);  // I5
  } else {
    Put(shard, entry);
  }
  ++entries_[number];
  ++size_;
}

// Returns the address of the entry. With `unpass`, decrements the counters of the buckets that the
// entry passed.
std::atomic<uint64_t>& LocatorTable::EntryOf(uint64_t hash, uint64_t entry, bool unpass) {
  const Shard shard = ShardOf(hash);
  const uint64_t fingerprint = FingerprintOf(hash);
  for (Path path(fingerprint, shard.size());;) {
    Bucket& bucket = shard.at(path.bucket());
    for (uint32_t mask = bucket.fingerprints().Equal(fingerprint); mask != 0; mask &= mask - 1) {
      std::atomic<uint64_t>& slot = bucket.entries[static_cast<size_t>(std::countr_zero(mask))];
      if (slot.load(std::memory_order_relaxed) == entry) return slot;  // I0
    }
    if (unpass) bucket.Unpass(fingerprint);
    KV_CHECK(path.Advance() && "no such entry");
  }
}

void LocatorTable::Erase(uint64_t hash, Locator locator) {
  const uint64_t entry = FingerprintOf(hash) << kLocatorBits | locator;
  // I5: decrements the counters before it clears the entry. In between, readers may miss the entry.
  // This is correct: either no holder has the slot of the entry (I4), or the versions of its
  // holders are odd (I1).
  EntryOf(hash, entry, true).store(0, std::memory_order_release);
  const size_t number = NumberOf(hash);
  --entries_[number];
  --size_;
  if (has_filter_) TakeFromFilter(ShardOf(hash), FingerprintOf(hash));
}

void LocatorTable::Reserve(uint64_t more) {
  for (size_t number = 0; number < kShards; ++number) {
    const Shard shard = Shard(shards_[number].load(std::memory_order_relaxed));  // I0
    size_t larger = shard.size_number();
    while (!Fits(entries_[number] + more / kShards, kShardSizes[larger], kEntries, kReserved)) {
      ++larger;
    }
    if (larger > shard.size_number()) Resize(number, larger);
  }
}

bool LocatorTable::Trim(size_t number) {
  if (grown_.test(number)) {
    grown_.reset(number);
    return true;
  }
  const Shard shard = Shard(shards_[number].load(std::memory_order_relaxed));  // I0
  const uint64_t entries = entries_[number];
  if (shard.size() < 8 || !Fits(entries, shard.size(), kEntries, kTrimmed)) return false;
  size_t smaller = 1;
  while (!Fits(entries, kShardSizes[smaller], kEntries, kAfterTrim)) ++smaller;
  if (smaller < shard.size_number()) Resize(number, smaller);
  return false;
}

void LocatorTable::Replace(uint64_t hash, Locator locator, Locator by) {
  KV_CHECK(by != 0 && by >> kLocatorBits == 0);
  const uint64_t high = FingerprintOf(hash) << kLocatorBits;
  // I5: one store replaces the locator of the entry.
  EntryOf(hash, high | locator, false).store(high | by, std::memory_order_release);
}

}  // namespace kvcast::router
