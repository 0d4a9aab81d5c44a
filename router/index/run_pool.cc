// SPDX-License-Identifier: Apache-2.0
#include "router/index/run_pool.h"

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>

#include "src/base/check.h"

// Relaxed loads in this file are the writer's own (I0). The invariants are in README.md.
namespace kvcast::router {

uint64_t PackBits(uint64_t word, uint64_t mask) {
  uint64_t packed = 0;
  for (uint32_t offset = 0; mask != 0; mask &= mask - 1, ++offset) {
    packed |= (word >> std::countr_zero(mask) & 1) << offset;
  }
  return packed;
}

template <typename Key>
RunPool<Key>::~RunPool() {
  Directory* const directory = directory_.load(std::memory_order_relaxed);
  for (uint32_t number = 1; number < runs_; ++number) {
    Run<Key>& run = At(number);
    // Free has retired the memory of runs that are not live.
    if (run.live.load(std::memory_order_relaxed) == 0) continue;
    FreeKeys(&arena_, reinterpret_cast<uintptr_t>(run.keys.load(std::memory_order_relaxed)));
    ContentKey* const contents = run.contents.load(std::memory_order_relaxed);
    if (contents != nullptr) arena_.Free(contents);
    arena_.Free(run.holders.load(std::memory_order_relaxed));
  }
  // Collect frees the retired objects. The free functions of these objects use no member of the
  // pool except arena_ and free_.
  reclaim_.Collect();
  for (size_t i = 0; i < segments_; ++i) arena_.Free(directory[i].load(std::memory_order_relaxed));
  delete[] directory;
}

// Byte strings may own memory, so an array of them needs destructors.
template <typename Key>
Key* RunPool<Key>::NewKeys(uint32_t capacity) {
  if constexpr (std::is_trivial_v<Key>) {
    return new (arena_.Allocate(capacity * sizeof(Key))) Key[capacity];
  } else {
    return new Key[capacity];
  }
}

template <typename Key>
ContentKey* RunPool<Key>::NewContents(uint32_t capacity) {
  return new (arena_.Allocate(capacity * sizeof(ContentKey))) ContentKey[capacity];
}

template <typename Key>
void RunPool<Key>::FreeKeys(void* arena, uintptr_t keys) {
  if constexpr (std::is_trivial_v<Key>) {
    FreeInArena(arena, keys);
  } else {
    delete[] reinterpret_cast<Key*>(keys);
  }
}

template <typename Key>
void RunPool<Key>::FreeInArena(void* arena, uintptr_t object) {
  static_cast<SlabArena*>(arena)->Free(reinterpret_cast<void*>(object));
}

template <typename Key>
void RunPool<Key>::RetireKeys(Key* keys) {
  reclaim_.Retire(FreeKeys, &arena_, reinterpret_cast<uintptr_t>(keys));
}

template <typename Key>
void RunPool<Key>::RetireHolders(HolderSet* set) {
  reclaim_.Retire(FreeInArena, &arena_, reinterpret_cast<uintptr_t>(set));
}

template <typename Key>
void RunPool<Key>::RetireContents(ContentKey* contents) {
  if (contents != nullptr) {
    reclaim_.Retire(FreeInArena, &arena_, reinterpret_cast<uintptr_t>(contents));
  }
}

template <typename Key>
void RunPool<Key>::AddSegment() {
  Directory* old = directory_.load(std::memory_order_relaxed);
  if (segments_ == directory_size_) {
    const size_t size = std::max<size_t>(8, 2 * directory_size_);
    auto* const directory = new Directory[size];
    for (size_t i = 0; i < segments_; ++i) {
      // No reader sees the new array before the release store below (I6).
      directory[i].store(old[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    directory_.store(directory, std::memory_order_release);  // I6
    directory_size_ = size;
    if (old != nullptr) {
      reclaim_.Retire(
          [](void*, uintptr_t object) { delete[] reinterpret_cast<Directory*>(object); }, nullptr,
          reinterpret_cast<uintptr_t>(old));
    }
  }
  auto* const segment =
      new (arena_.Allocate(kSegmentRuns * sizeof(Run<Key>))) Run<Key>[kSegmentRuns];
  // I6
  directory_.load(std::memory_order_relaxed)[segments_++].store(segment, std::memory_order_release);
}

template <typename Key>
uint32_t RunPool<Key>::RoomFor(size_t keys) {
  return static_cast<uint32_t>(
      std::min<size_t>(kRunKeys, (keys + kLeastRunKeys - 1) / kLeastRunKeys * kLeastRunKeys));
}

template <typename Key>
uint32_t RunPool<Key>::New(size_t keys, uint32_t stride) {
  if (free_.empty()) {
    KV_CHECK(runs_ < uint32_t{1} << 30);
    if (runs_ / kSegmentRuns >= segments_) AddSegment();
    free_.push_back(runs_++);
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  const uint32_t capacity = RoomFor(keys);
  Run<Key>& run = At(number);
  run.used = 0;
  run.retired = false;
  run.owner = run.end = 0;
  run.capacity = static_cast<uint8_t>(capacity);
  // I3: no reader uses the run before its first live bit is set. A reader that has a stale `next`
  // may read `live` and prefetch the run (I6).
  run.next.store(0, std::memory_order_relaxed);
  run.stride.store(stride, std::memory_order_relaxed);
  run.contents.store(stride == 0 ? nullptr : NewContents(capacity), std::memory_order_release);
  run.keys.store(NewKeys(capacity), std::memory_order_release);
  run.holders.store(HolderSet::New(arena_, 1), std::memory_order_release);
  return number;
}

template <typename Key>
uint32_t RunPool<Key>::CopyOf(uint32_t number, uint64_t slots) {
  const uint32_t stride = At(number).stride.load(std::memory_order_relaxed);
  const uint32_t by = New(static_cast<size_t>(std::popcount(slots)), stride);
  Run<Key>& from = At(number);
  Run<Key>& to = At(by);
  to.owner = from.owner;
  to.end = from.end == 0 ? 0 : from.end + static_cast<uint32_t>(std::countr_zero(slots)) * stride;
  const Key* const old_keys = from.keys.load(std::memory_order_relaxed);
  const ContentKey* const old_contents = from.contents.load(std::memory_order_relaxed);
  Key* const keys = to.keys.load(std::memory_order_relaxed);
  ContentKey* const contents = to.contents.load(std::memory_order_relaxed);
  for (uint64_t rest = slots; rest != 0; rest &= rest - 1) {
    const int offset = std::countr_zero(rest);
    if (stride != 0) contents[to.used] = old_contents[offset];
    keys[to.used++] = old_keys[offset];
  }
  const HolderSet& old_set = *from.holders.load(std::memory_order_relaxed);
  HolderSet* const set = HolderSet::New(arena_, std::max<uint32_t>(1, old_set.CountHolders()));
  for (uint32_t i = 0; i < old_set.size(); ++i) {
    const uint64_t packed = PackBits(old_set.next(i), slots);
    if (packed != 0) set->Append(old_set.id(i), packed, packed);
  }
  arena_.Free(to.holders.load(std::memory_order_relaxed));
  // I7
  to.holders.store(set, std::memory_order_release);
  const uint64_t live = from.live.load(std::memory_order_relaxed) & slots;
  to.live.store(PackBits(live, slots), std::memory_order_release);  // I3
  return by;
}

template <typename Key>
void RunPool<Key>::Grow(Run<Key>& run, size_t keys) {
  const uint32_t capacity = RoomFor(keys);
  Key* const old = run.keys.load(std::memory_order_relaxed);
  Key* const grown = NewKeys(capacity);
  std::copy_n(old, run.used, grown);
  if (ContentKey* const old_contents = run.contents.load(std::memory_order_relaxed)) {
    ContentKey* const contents = NewContents(capacity);
    std::copy_n(old_contents, run.used, contents);
    run.contents.store(contents, std::memory_order_release);  // I3
    RetireContents(old_contents);
  }
  run.keys.store(grown, std::memory_order_release);  // I3
  run.capacity = static_cast<uint8_t>(capacity);
  RetireKeys(old);
}

template <typename Key>
void RunPool<Key>::ReplaceHolders(Run<Key>& run, HolderSet* set) {
  HolderSet* const old = run.holders.load(std::memory_order_relaxed);
  run.holders.store(set, std::memory_order_release);  // I7
  RetireHolders(old);
}

template <typename Key>
void RunPool<Key>::Free(uint32_t number) {
  Run<Key>& run = At(number);
  run.live.store(0, std::memory_order_release);  // I4
  RetireKeys(run.keys.load(std::memory_order_relaxed));
  RetireContents(run.contents.load(std::memory_order_relaxed));
  RetireHolders(run.holders.load(std::memory_order_relaxed));
  // I11: a reader that has this number may still use it, so the number is retired too.
  reclaim_.Retire(
      [](void* pool, uintptr_t run_number) {
        static_cast<RunPool*>(pool)->free_.push_back(static_cast<uint32_t>(run_number));
      },
      this, number);
}

template class RunPool<uint64_t>;
template class RunPool<BlockHash>;

}  // namespace kvcast::router
