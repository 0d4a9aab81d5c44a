// SPDX-License-Identifier: Apache-2.0
#include "router/run_store.h"

#include <algorithm>
#include <new>
#include <type_traits>

#include "src/base/check.h"

namespace kvcast::router {
namespace {

constexpr uint32_t kLeastKeys = 8;  // a run has room for

uint32_t RoomFor(size_t keys) {
  return static_cast<uint32_t>(
      std::min<size_t>(64, (keys + kLeastKeys - 1) / kLeastKeys * kLeastKeys));
}

}  // namespace

template <typename Key>
RunStore<Key>::~RunStore() {
  Directory* const directory = directory_.load(std::memory_order_relaxed);
  for (uint32_t number = 1; number < runs_; ++number) {
    Run& run = At(number);
    // The others were retired with what they had.
    if (run.live.load(std::memory_order_relaxed) == 0) continue;
    FreeKeys(&arena_, reinterpret_cast<uintptr_t>(run.keys.load(std::memory_order_relaxed)));
    arena_.Free(run.holders.load(std::memory_order_relaxed));
  }
  // What is retired looks at nothing of the runs but its own memory and free_runs_.
  epochs_.Collect();
  for (size_t i = 0; i < segments_; ++i) arena_.Free(directory[i].load(std::memory_order_relaxed));
  delete[] directory;
}

// Byte strings may own memory.
template <typename Key>
Key* RunStore<Key>::NewKeys(uint32_t capacity) {
  if constexpr (std::is_trivial_v<Key>) {
    return new (arena_.Allocate(capacity * sizeof(Key))) Key[capacity];
  } else {
    return new Key[capacity];
  }
}

template <typename Key>
void RunStore<Key>::FreeKeys(void* arena, uintptr_t keys) {
  if constexpr (std::is_trivial_v<Key>) {
    FreeInArena(arena, keys);
  } else {
    delete[] reinterpret_cast<Key*>(keys);
  }
}

template <typename Key>
void RunStore<Key>::FreeInArena(void* arena, uintptr_t object) {
  static_cast<SlabArena*>(arena)->Free(reinterpret_cast<void*>(object));
}

template <typename Key>
void RunStore<Key>::RetireKeys(Key* keys) {
  epochs_.Retire(FreeKeys, &arena_, reinterpret_cast<uintptr_t>(keys));
}

template <typename Key>
void RunStore<Key>::RetireHolders(HolderSet* holders) {
  epochs_.Retire(FreeInArena, &arena_, reinterpret_cast<uintptr_t>(holders));
}

// Moves the cursor to the key if it lies beside it, in the same run.
template <typename Key>
bool RunStore<Key>::StepTo(const Key& key, bool backwards, Cursor& cursor) const {
  if (cursor.run == 0) return false;
  if (backwards && cursor.offset > 0 && IsAt(*cursor.at, cursor.offset - 1, key)) {
    --cursor.offset;
    return true;
  }
  if (cursor.offset + 1 < kRunKeys && IsAt(*cursor.at, cursor.offset + 1, key)) {
    ++cursor.offset;
    return true;
  }
  return false;
}

template <typename Key>
void RunStore<Key>::AddSegment() {
  Directory* old = directory_.load(std::memory_order_relaxed);
  if (segments_ == directory_size_) {
    const size_t size = std::max<size_t>(8, 2 * directory_size_);
    auto* const directory = new Directory[size];
    for (size_t i = 0; i < segments_; ++i) {
      directory[i].store(old[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    directory_.store(directory, std::memory_order_release);
    directory_size_ = size;
    if (old != nullptr) {
      epochs_.Retire([](void*, uintptr_t object) { delete[] reinterpret_cast<Directory*>(object); },
                     nullptr, reinterpret_cast<uintptr_t>(old));
    }
  }
  auto* const segment = new (arena_.Allocate(kSegmentRuns * sizeof(Run))) Run[kSegmentRuns];
  directory_.load(std::memory_order_relaxed)[segments_++].store(segment, std::memory_order_release);
}

template <typename Key>
uint32_t RunStore<Key>::NewRun(uint32_t capacity) {
  if (free_runs_.empty()) {
    KV_CHECK(runs_ < uint32_t{1} << 30);
    if (runs_ / kSegmentRuns >= segments_) AddSegment();
    free_runs_.push_back(runs_++);
  }
  const uint32_t number = free_runs_.back();
  free_runs_.pop_back();
  Run& run = At(number);
  run.used = 0;
  run.capacity = static_cast<uint8_t>(capacity);
  run.next.store(0, std::memory_order_relaxed);
  run.keys.store(NewKeys(capacity), std::memory_order_release);
  run.holders.store(HolderSet::New(arena_, 1), std::memory_order_release);
  return number;
}

template <typename Key>
void RunStore<Key>::GrowKeys(Run& run, uint32_t capacity) {
  Key* const old = run.keys.load(std::memory_order_relaxed);
  Key* const keys = NewKeys(capacity);
  std::copy_n(old, run.used, keys);
  run.keys.store(keys, std::memory_order_release);
  run.capacity = static_cast<uint8_t>(capacity);
  RetireKeys(old);
}

// A place for a key that nobody holds: behind the cursor if that is free, else at the start of a
// new run.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::NewSpot(const Key& key, size_t more,
                                                    const Cursor& cursor) {
  Spot spot;
  if (cursor.run != 0 && cursor.offset + 1 < kRunKeys) {
    Run& run = At(cursor.run);
    const uint32_t next = cursor.offset + 1;
    if (next == run.used) {
      if (run.used == run.capacity) {
        GrowKeys(run, RoomFor(std::max<size_t>(2 * size_t{run.capacity}, run.used + 1 + more)));
      }
      run.keys.load(std::memory_order_relaxed)[run.used++] = key;
      spot = {cursor.run, next};
    } else if ((run.live.load(std::memory_order_relaxed) >> next & 1) == 0 && next < run.used &&
               run.keys.load(std::memory_order_relaxed)[next] == key) {
      spot = {cursor.run, next};  // back at its old position
    }
  }
  if (spot.run == 0) {
    spot = {NewRun(RoomFor(1 + more)), 0};
    Run& run = At(spot.run);
    run.keys.load(std::memory_order_relaxed)[0] = key;
    run.used = 1;
    if (cursor.run != 0 && cursor.offset + 1 == kRunKeys) {
      At(cursor.run).next.store(spot.run, std::memory_order_release);
    }
  }
  Run& run = At(spot.run);
  run.live.store(run.live.load(std::memory_order_relaxed) | uint64_t{1} << spot.offset,
                 std::memory_order_release);
  return spot;
}

template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::FindOrInsert(const Key& key, size_t more,
                                                         const Cursor& cursor) {
  const uint64_t hash = hash_(key);
  LocatorTable::Room room = nullptr;
  if (const Locator found = table_.Find(hash, HasKey(key), &room)) return SpotOf(found);
  const Spot spot = NewSpot(key, more, cursor);
  table_.Insert(hash, LocatorOf(spot), room);
  return spot;
}

// Makes room for one more holder.
template <typename Key>
HolderSet& RunStore<Key>::GrowHolders(uint32_t number) {
  Run& run = At(number);
  HolderSet* const set = run.holders.load(std::memory_order_relaxed);
  const uint32_t holding = set->CountHolders();
  HolderSet* const grown = HolderSet::New(arena_, holding + 1 + holding / 4);
  std::vector<uint32_t> moved(set->size(), kNoHolder);
  for (uint32_t i = 0; i < set->size(); ++i) {
    if (set->Empty(i)) continue;
    moved[i] = grown->size();
    grown->Append(set->place(i), set->bits(i), set->next(i));
  }
  for (Dirty& dirty : dirty_) {
    if (dirty.run == number && dirty.holder != kNoHolder) dirty.holder = moved[dirty.holder];
  }
  run.holders.store(grown, std::memory_order_release);
  RetireHolders(set);
  return *grown;
}

// Position of the place among the run's holders, added if it is not there.
template <typename Key>
uint32_t RunStore<Key>::HolderOf(uint32_t number, PlaceId place) {
  HolderSet* set = At(number).holders.load(std::memory_order_relaxed);
  const uint32_t found = set->Find(place);
  if (found < set->size()) return found;
  if (set->size() == set->capacity()) set = &GrowHolders(number);
  set->Append(place, 0, 0);
  return set->size() - 1;
}

// Puts the cursor on a key of another run. The place is noted for Publish.
template <typename Key>
void RunStore<Key>::Enter(Spot spot, PlaceId place, Cursor& cursor) {
  const uint32_t holder = HolderOf(spot.run, place);
  Run& run = At(spot.run);
  cursor = {spot.run, spot.offset, &run,
            run.holders.load(std::memory_order_relaxed)->next_at(holder)};
  dirty_.push_back({spot.run, holder});
}

template <typename Key>
bool RunStore<Key>::Add(const Key& key, PlaceId place, size_t more, Cursor& cursor) {
  if (cursor.next_bits == nullptr || !StepTo(key, false, cursor)) {
    const Spot spot = FindOrInsert(key, more, cursor);
    if (spot.run == cursor.run && cursor.next_bits != nullptr) {
      cursor.offset = spot.offset;
    } else {
      Enter(spot, place, cursor);
    }
  }
  const uint64_t bit = uint64_t{1} << cursor.offset;
  if ((*cursor.next_bits & bit) == 0) {
    *cursor.next_bits |= bit;
    return true;
  }
  AddExtra(key, place);
  return false;
}

template <typename Key>
void RunStore<Key>::AddExtra(const Key& key, PlaceId place) {
  if (extras_of_place_.size() <= place) extras_of_place_.resize(place + size_t{1});
  uint32_t& extra = extra_copies_[{place, key}];
  if (extra == 0) ++extras_of_place_[place];
  // One less than the largest number, so that the count of all copies is one too.
  if (extra < ~uint32_t{0} - 1) ++extra;
}

// Whether there was one.
template <typename Key>
bool RunStore<Key>::RemoveExtra(const Key& key, PlaceId place) {
  if (place >= extras_of_place_.size() || extras_of_place_[place] == 0) return false;
  const auto extra = extra_copies_.find({place, key});
  if (extra == extra_copies_.end()) return false;
  if (--extra->second == 0) {
    extra_copies_.erase(extra);
    --extras_of_place_[place];
  }
  return true;
}

template <typename Key>
Removal RunStore<Key>::Remove(const Key& key, PlaceId place, Cursor& cursor) {
  if (!StepTo(key, true, cursor)) {
    const Spot spot = Find(key);
    if (spot.run == 0) return Removal::kNotHeld;
    if (spot.run == cursor.run) {
      cursor.offset = spot.offset;
    } else {
      const HolderSet& holders = *At(spot.run).holders.load(std::memory_order_relaxed);
      if (holders.Find(place) == holders.size()) return Removal::kNotHeld;
      Enter(spot, place, cursor);
      lost_.push_back(spot.run);
    }
  }
  const uint64_t bit = uint64_t{1} << cursor.offset;
  if ((*cursor.next_bits & bit) == 0) return Removal::kNotHeld;
  if (RemoveExtra(key, place)) return Removal::kCopiesLeft;
  *cursor.next_bits &= ~bit;
  return Removal::kLastCopy;
}

template <typename Key>
void RunStore<Key>::Publish() {
  for (const Dirty& dirty : dirty_) {
    if (dirty.holder == kNoHolder) continue;
    At(dirty.run).holders.load(std::memory_order_relaxed)->Publish(dirty.holder);
  }
  dirty_.clear();
}

template <typename Key>
void RunStore<Key>::Tidy() {
  for (const uint32_t number : lost_) {
    const Run& run = At(number);
    const uint64_t live = run.live.load(std::memory_order_relaxed);
    if (live == 0) continue;
    const uint64_t held = run.holders.load(std::memory_order_relaxed)->Union();
    if ((live & ~held) == 0) continue;
    KillMany(number, live & ~held);
    Settle(number);
  }
  lost_.clear();
}

template <typename Key>
void RunStore<Key>::KillMany(uint32_t number, uint64_t dead) {
  Run& run = At(number);
  const Key* const keys = run.keys.load(std::memory_order_relaxed);
  run.live.store(run.live.load(std::memory_order_relaxed) & ~dead, std::memory_order_release);
  for (uint64_t rest = dead; rest != 0; rest &= rest - 1) {
    table_.Prefetch(hash_(keys[std::countr_zero(rest)]));
  }
  for (; dead != 0; dead &= dead - 1) {
    const auto offset = static_cast<uint32_t>(std::countr_zero(dead));
    table_.Erase(hash_(keys[offset]), LocatorOf({number, offset}));
  }
}

// Gives back what a run no longer needs.
template <typename Key>
void RunStore<Key>::Settle(uint32_t number) {
  const Run& run = At(number);
  const int living = std::popcount(run.live.load(std::memory_order_relaxed));
  if (living > 0 && (run.capacity <= kLeastKeys || living * 4 > run.capacity)) return;
  // The sweep may have passed where the run moves to: what it is to find must not move with it.
  DropClosed(number);
  run.live.load(std::memory_order_relaxed) == 0 ? FreeRun(number) : Rewrite(number);
}

template <typename Key>
void RunStore<Key>::Rewrite(uint32_t number) {
  const uint64_t live = At(number).live.load(std::memory_order_relaxed);
  const auto living = static_cast<uint32_t>(std::popcount(live));
  const uint32_t by = NewRun(RoomFor(living));
  Run& from = At(number);
  Run& to = At(by);
  const Key* const old_keys = from.keys.load(std::memory_order_relaxed);
  Key* const keys = to.keys.load(std::memory_order_relaxed);
  for (uint64_t rest = live; rest != 0; rest &= rest - 1) {
    keys[to.used++] = old_keys[std::countr_zero(rest)];
  }
  const HolderSet& old_holders = *from.holders.load(std::memory_order_relaxed);
  HolderSet* const holders =
      HolderSet::New(arena_, std::max<uint32_t>(1, old_holders.CountHolders()));
  for (uint32_t i = 0; i < old_holders.size(); ++i) {
    uint64_t packed = 0;
    uint32_t offset = 0;
    for (uint64_t rest = live; rest != 0; rest &= rest - 1, ++offset) {
      packed |= (old_holders.next(i) >> std::countr_zero(rest) & 1) << offset;
    }
    if (packed != 0) holders->Append(old_holders.place(i), packed, packed);
  }
  arena_.Free(to.holders.load(std::memory_order_relaxed));
  to.holders.store(holders, std::memory_order_release);
  to.live.store(BitRange(0, living), std::memory_order_release);
  uint32_t offset = 0;
  for (uint64_t rest = live; rest != 0; rest &= rest - 1, ++offset) {
    const auto old_offset = static_cast<uint32_t>(std::countr_zero(rest));
    table_.Replace(hash_(keys[offset]), LocatorOf({number, old_offset}), LocatorOf({by, offset}));
  }
  FreeRun(number);
}

template <typename Key>
void RunStore<Key>::FreeRun(uint32_t number) {
  Run& run = At(number);
  run.live.store(0, std::memory_order_release);
  RetireKeys(run.keys.load(std::memory_order_relaxed));
  RetireHolders(run.holders.load(std::memory_order_relaxed));
  // A reader that came by way of this number must not find another run there.
  epochs_.Retire(
      [](void* store, uintptr_t run_number) {
        static_cast<RunStore*>(store)->free_runs_.push_back(static_cast<uint32_t>(run_number));
      },
      this, number);
}

template <typename Key>
void RunStore<Key>::Seek(const Key& key, Cursor& cursor) const {
  const Spot spot = Find(key);
  cursor = {};
  if (spot.run != 0) cursor = {spot.run, spot.offset, &At(spot.run), nullptr};
}

template <typename Key>
bool RunStore<Key>::Holds(const Key& key, PlaceId place) const {
  const Spot spot = Find(key);
  if (spot.run == 0) return false;
  const HolderSet& holders = *At(spot.run).holders.load(std::memory_order_relaxed);
  const uint32_t holder = holders.Find(place);
  return holder < holders.size() && (holders.next(holder) >> spot.offset & 1) != 0;
}

// Takes from closed places what they hold here. True: they held something.
template <typename Key>
bool RunStore<Key>::DropClosed(uint32_t number) {
  const Run& run = At(number);
  HolderSet& holders = *run.holders.load(std::memory_order_relaxed);
  bool dropped = false;
  for (uint32_t i = 0; i < holders.size(); ++i) {
    if (holders.Empty(i) || places_.Read(holders.place(i))) continue;
    *holders.next_at(i) = 0;
    holders.Publish(i);
    dropped = true;
  }
  if (dropped) KillMany(number, run.live.load(std::memory_order_relaxed) & ~holders.Union());
  return dropped;
}

template <typename Key>
bool RunStore<Key>::Sweep(size_t runs) {
  for (; runs > 0 && sweep_next_ < runs_; --runs) {
    const uint32_t number = sweep_next_++;
    if (At(number).live.load(std::memory_order_relaxed) != 0 && DropClosed(number)) Settle(number);
  }
  return sweep_next_ < runs_;
}

template <typename Key>
void RunStore<Key>::EndSweep() {
  absl::erase_if(extra_copies_, [&](const auto& extra) {
    if (places_.Read(extra.first.first)) return false;
    --extras_of_place_[extra.first.first];
    return true;
  });
}

template class RunStore<uint64_t>;
template class RunStore<BlockHash>;

}  // namespace kvcast::router
