// SPDX-License-Identifier: Apache-2.0
#include "router/locator_table.h"

#include <new>

#include "src/base/check.h"

namespace kvcast::router {
namespace {

// Of the entries that a shard has room for: above the first it grows, below the second it shrinks.
constexpr uint64_t kMostPercent = 86;
constexpr uint64_t kLeastPercent = 40;

// Every second size that the arena has, from one bucket on: a step is about a quarter.
template <size_t kSteps>
constexpr std::array<uint32_t, kSteps> BucketCounts() {
  std::array<uint32_t, kSteps> counts{};
  constexpr auto kBytes = SlabArena::ObjectSizes();
  size_t from = 0;
  while (kBytes[from] < 64) ++from;
  for (size_t i = 0; i < kSteps; ++i) {
    // Beyond the arena's sizes by the same rule.
    counts[i] = from + 2 * i < kBytes.size() ? static_cast<uint32_t>(kBytes[from + 2 * i] / 64)
                                             : counts[i - 1] + counts[i - 1] / 4;
  }
  return counts;
}

}  // namespace

constinit const std::array<uint32_t, LocatorTable::kSizeSteps> LocatorTable::kSizes =
    BucketCounts<LocatorTable::kSizeSteps>();

LocatorTable::~LocatorTable() {
  Shard* const shards = shards_.load(std::memory_order_relaxed);
  if (shards == nullptr) return;
  for (size_t i = 0; i < kShards; ++i) {
    const uint64_t word = shards[i].array.load(std::memory_order_relaxed);
    if (word != 0) FreeArray(&arena_, word);
  }
  delete[] shards;
}

void LocatorTable::FreeArray(void* arena, uintptr_t word) {
  static_cast<SlabArena*>(arena)->Free(ArrayOf(word).buckets);
}

// The counts go up before the entry is there: a reader that sees it will find the way.
void LocatorTable::Put(const Array& array, uint64_t entry) {
  for (uint64_t b = HomeOf(entry >> kLocatorBits, array.size);;) {
    Bucket& bucket = array.buckets[b];
    for (std::atomic<uint64_t>& slot : bucket.entries) {
      if (slot.load(std::memory_order_relaxed) != 0) continue;
      slot.store(entry, std::memory_order_release);
      return;
    }
    bucket.passed.store(bucket.passed.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
    if (++b == array.size) b = 0;
  }
}

void LocatorTable::Resize(Shard& shard, size_t step) {
  KV_CHECK(step < kSizeSteps);
  auto* const buckets = new (arena_.Allocate(kSizes[step] * sizeof(Bucket))) Bucket[kSizes[step]];
  const Array array{buckets, kSizes[step]};
  const uint64_t old = shard.array.load(std::memory_order_relaxed);
  if (old != 0) {
    const Array from = ArrayOf(old);
    for (uint64_t b = 0; b < from.size; ++b) {
      for (const std::atomic<uint64_t>& slot : from.buckets[b].entries) {
        const uint64_t entry = slot.load(std::memory_order_relaxed);
        if (entry != 0) Put(array, entry);
      }
    }
  }
  shard.array.store(reinterpret_cast<uint64_t>(buckets) | step, std::memory_order_release);
  if (old != 0) epochs_.Retire(FreeArray, &arena_, old);
}

void LocatorTable::Insert(uint64_t hash, Locator locator) {
  KV_CHECK(locator != 0 && locator >> kLocatorBits == 0);
  Shard* shards = shards_.load(std::memory_order_relaxed);
  if (shards == nullptr) {
    shards = new Shard[kShards];
    shards_.store(shards, std::memory_order_release);
  }
  Shard& shard = shards[ShardOf(hash)];
  const uint64_t word = shard.array.load(std::memory_order_relaxed);
  if (word == 0) {
    Resize(shard, 0);
  } else if ((shard.entries + 1) * 100 > ArrayOf(word).size * kEntries * kMostPercent) {
    Resize(shard, (word & 63) + 1);
  }
  Put(ArrayOf(shard.array.load(std::memory_order_relaxed)),
      FingerprintOf(hash) << kLocatorBits | locator);
  ++shard.entries;
  ++size_;
}

// The place of the entry. With `unpass` the buckets before it are no longer passed by it.
std::atomic<uint64_t>& LocatorTable::EntryOf(uint64_t hash, uint64_t entry, bool unpass) {
  const Array array = ArrayOf(
      shards_.load(std::memory_order_relaxed)[ShardOf(hash)].array.load(std::memory_order_relaxed));
  uint64_t b = HomeOf(FingerprintOf(hash), array.size);
  for (uint64_t looked = 0; looked < array.size; ++looked) {
    Bucket& bucket = array.buckets[b];
    for (std::atomic<uint64_t>& slot : bucket.entries) {
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
  const uint64_t word = shard.array.load(std::memory_order_relaxed);
  const uint64_t room = ArrayOf(word).size * kEntries;
  if ((word & 63) < 4 || shard.entries * 100 >= room * kLeastPercent) return;
  size_t step = word & 63;
  // Half way between the two bounds, so that neither is near.
  while (step > 0 && shard.entries * 100 < kSizes[step] * kEntries * uint64_t{63}) --step;
  Resize(shard, step);
}

void LocatorTable::Replace(uint64_t hash, Locator locator, Locator by) {
  KV_CHECK(by != 0 && by >> kLocatorBits == 0);
  const uint64_t high = FingerprintOf(hash) << kLocatorBits;
  EntryOf(hash, high | locator, false).store(high | by, std::memory_order_release);
}

}  // namespace kvcast::router
