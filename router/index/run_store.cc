// SPDX-License-Identifier: Apache-2.0
#include "router/index/run_store.h"

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "src/base/check.h"

// Relaxed loads in this file are the writer's own (I0). The invariants are in README.md.
namespace kvcast::router {
namespace {

constexpr uint32_t kLeastKeys = 8;  // least capacity of a run
// A gap of so many slots that no place holds cuts a run of named blocks in two.
constexpr uint32_t kCutGap = kLeastKeys;

uint32_t RoomFor(size_t keys) {
  return static_cast<uint32_t>(
      std::min<size_t>(64, (keys + kLeastKeys - 1) / kLeastKeys * kLeastKeys));
}

// Collects the bits of `word` at the positions that are set in `mask`, side by side.
uint64_t Pack(uint64_t word, uint64_t mask) {
  uint64_t packed = 0;
  for (uint32_t offset = 0; mask != 0; mask &= mask - 1, ++offset) {
    packed |= (word >> std::countr_zero(mask) & 1) << offset;
  }
  return packed;
}

// Cuts `live` into stretches between gaps of kCutGap. Calls `visit(mask of a stretch)` for each.
template <typename Visit>
void ForEachStretch(uint64_t live, Visit&& visit) {
  while (live != 0) {
    const auto begin = static_cast<uint32_t>(std::countr_zero(live));
    uint32_t end = begin;  // the last bit of the stretch
    for (uint64_t rest = live; rest != 0; rest &= rest - 1) {
      const auto bit = static_cast<uint32_t>(std::countr_zero(rest));
      if (bit > end + kCutGap) break;
      end = bit;
    }
    const uint64_t stretch = BitRange(begin, end - begin + 1);
    visit(stretch);
    live &= ~stretch;
  }
}

}  // namespace

template <typename Key>
RunStore<Key>::~RunStore() {
  Directory* const directory = directory_.load(std::memory_order_relaxed);
  for (uint32_t number = 1; number < runs_; ++number) {
    Run& run = At(number);
    // FreeRun has retired the memory of the other runs.
    if (run.live.load(std::memory_order_relaxed) == 0) continue;
    FreeKeys(&arena_, reinterpret_cast<uintptr_t>(run.keys.load(std::memory_order_relaxed)));
    ContentKey* const contents = run.contents.load(std::memory_order_relaxed);
    if (contents != nullptr) arena_.Free(contents);
    arena_.Free(run.holders.load(std::memory_order_relaxed));
  }
  // The retired objects use only their own memory and free_runs_.
  epochs_.Collect();
  for (size_t i = 0; i < segments_; ++i) arena_.Free(directory[i].load(std::memory_order_relaxed));
  delete[] directory;
}

// Byte strings may own memory, so their array needs a destructor.
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

template <typename Key>
void RunStore<Key>::RetireContents(ContentKey* contents) {
  if (contents != nullptr) {
    epochs_.Retire(FreeInArena, &arena_, reinterpret_cast<uintptr_t>(contents));
  }
}

// Moves the cursor to the key if the key lies beside the cursor in the same run.
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
      // No reader sees the new array before the release store below (I6).
      directory[i].store(old[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    directory_.store(directory, std::memory_order_release);  // I6
    directory_size_ = size;
    if (old != nullptr) {
      epochs_.Retire([](void*, uintptr_t object) { delete[] reinterpret_cast<Directory*>(object); },
                     nullptr, reinterpret_cast<uintptr_t>(old));
    }
  }
  auto* const segment = new (arena_.Allocate(kSegmentRuns * sizeof(Run))) Run[kSegmentRuns];
  // I6
  directory_.load(std::memory_order_relaxed)[segments_++].store(segment, std::memory_order_release);
}

template <typename Key>
ContentKey* RunStore<Key>::NewContents(uint32_t capacity) {
  return new (arena_.Allocate(capacity * sizeof(ContentKey))) ContentKey[capacity];
}

template <typename Key>
uint32_t RunStore<Key>::NewRun(uint32_t capacity, uint32_t stride) {
  if (free_runs_.empty()) {
    KV_CHECK(runs_ < uint32_t{1} << 30);
    if (runs_ / kSegmentRuns >= segments_) AddSegment();
    free_runs_.push_back(runs_++);
  }
  const uint32_t number = free_runs_.back();
  free_runs_.pop_back();
  Run& run = At(number);
  run.used = 0;
  run.owner = run.end = 0;
  run.capacity = static_cast<uint8_t>(capacity);
  // I3: no reader uses the run before its first live bit is set. Readers may read `live` and
  // prefetch through a stale `next` (I6).
  run.next.store(0, std::memory_order_relaxed);
  run.stride.store(stride, std::memory_order_relaxed);
  run.contents.store(stride == 0 ? nullptr : NewContents(capacity), std::memory_order_release);
  run.keys.store(NewKeys(capacity), std::memory_order_release);
  run.holders.store(HolderSet::New(arena_, 1), std::memory_order_release);
  return number;
}

template <typename Key>
void RunStore<Key>::GrowKeys(Run& run, uint32_t capacity) {
  Key* const old = run.keys.load(std::memory_order_relaxed);
  Key* const keys = NewKeys(capacity);
  std::copy_n(old, run.used, keys);
  if (ContentKey* const old_contents = run.contents.load(std::memory_order_relaxed)) {
    ContentKey* const contents = NewContents(capacity);
    std::copy_n(old_contents, run.used, contents);
    run.contents.store(contents, std::memory_order_release);  // I3
    RetireContents(old_contents);
  }
  run.keys.store(keys, std::memory_order_release);  // I3
  run.capacity = static_cast<uint8_t>(capacity);
  RetireKeys(old);
}

template <typename Key>
BlockName RunStore<Key>::NameAt(const Run& run, uint32_t offset) {
  const uint32_t stride = run.stride.load(std::memory_order_relaxed);
  if (stride == 0) return {};
  return {run.contents.load(std::memory_order_relaxed)[offset], stride,
          run.end == 0 ? 0 : run.end + offset * stride};
}

// Returns the slot behind the cursor if it is unused, or if it belonged to this block before.
// REQUIRES: the stride of the run is the stride of the name.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::SpotBehind(const Key& key, BlockName name, size_t more,
                                                       const Cursor& cursor) {
  if (cursor.offset + 1 >= kRunKeys) return {};
  Run& run = At(cursor.run);
  const uint32_t next = cursor.offset + 1;
  if (next == run.used) {
    if (run.used == run.capacity) {
      GrowKeys(run, RoomFor(std::max<size_t>(2 * size_t{run.capacity}, run.used + 1 + more)));
    }
    // I3: the slot is written before Enliven sets its live bit.
    if (name.named()) run.contents.load(std::memory_order_relaxed)[run.used] = name.content();
    run.keys.load(std::memory_order_relaxed)[run.used++] = key;
    return {cursor.run, next};
  }
  const bool was_there = (run.live.load(std::memory_order_relaxed) >> next & 1) == 0 &&
                         run.keys.load(std::memory_order_relaxed)[next] == key &&
                         IsNamed(run, next, name);
  return was_there ? Spot{cursor.run, next} : Spot{};
}

// Returns the first slot of a run that begins with this block, if no place holds that block.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::DeadHead(const Key& key, BlockName name) const {
  return SpotOf(heads_.Find(hash_(name.content()), [&](Locator locator) {
    const Run& run = At(SpotOf(locator).run);
    return run.stride.load(std::memory_order_relaxed) == name.stride() && IsNamed(run, 0, name) &&
           run.keys.load(std::memory_order_relaxed)[0] == key &&
           (run.live.load(std::memory_order_relaxed) & 1) == 0;
  }));
}

template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::NewHead(const Key& key, BlockName name, size_t more,
                                                    const Cursor& cursor) {
  const Spot spot = {NewRun(RoomFor(1 + more), name.stride()), 0};
  Run& run = At(spot.run);
  // I3
  run.keys.load(std::memory_order_relaxed)[0] = key;
  if (name.named()) run.contents.load(std::memory_order_relaxed)[0] = name.content();
  run.used = 1;
  run.end = name.end();
  if (cursor.run != 0 && cursor.offset + 1 == kRunKeys) {
    At(cursor.run).next.store(spot.run, std::memory_order_release);  // I6
  }
  return spot;
}

template <typename Key>
void RunStore<Key>::Enliven(Spot spot) {
  Run& run = At(spot.run);
  // I3
  run.live.store(run.live.load(std::memory_order_relaxed) | uint64_t{1} << spot.offset,
                 std::memory_order_release);
}

template <typename Key>
void RunStore<Key>::MarkTwin(Spot spot) {
  At(spot.run).has_twins = true;
  twin_slots_[spot.run] |= uint64_t{1} << spot.offset;
}

// REQUIRES: the first slot of the run is written.
template <typename Key>
void RunStore<Key>::InsertHead(uint32_t number) {
  const BlockName name = NameAt(At(number), 0);
  heads_.Insert(hash_(name.content()), LocatorOf({number, 0}));
  named_runs_.fetch_add(1, std::memory_order_release);  // I9
}

template <typename Key>
bool RunStore<Key>::HoldsAny(const Run& run, SourcePlaces own) {
  const HolderSet& holders = *run.holders.load(std::memory_order_relaxed);
  return std::any_of(own.begin(), own.end(), [&](PlaceId place) {
    const uint32_t holder = holders.Find(place);
    return holder < holders.size() && holders.next(holder) != 0;
  });
}

template <typename Key>
bool RunStore<Key>::OwnsRival(const Key& key, BlockName name, const Holding& holding) const {
  return heads_.Find(hash_(name.content()), [&](Locator locator) {
    const Run& run = At(SpotOf(locator).run);
    return run.owner == holding.source &&
           run.stride.load(std::memory_order_relaxed) == name.stride() && IsNamed(run, 0, name) &&
           !(run.keys.load(std::memory_order_relaxed)[0] == key) && HoldsAny(run, holding.own);
  }) != 0;
}

// Makes a holder set with room for one more holder.
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
  run.holders.store(grown, std::memory_order_release);  // I7
  RetireHolders(set);
  return *grown;
}

// Returns the position of the place among the run's holders. Adds the place if it is missing.
template <typename Key>
uint32_t RunStore<Key>::HolderOf(uint32_t number, PlaceId place) {
  HolderSet* set = At(number).holders.load(std::memory_order_relaxed);
  const uint32_t found = set->Find(place);
  if (found < set->size()) return found;
  if (set->size() == set->capacity()) set = &GrowHolders(number);
  set->Append(place, 0, 0);
  return set->size() - 1;
}

// Puts the cursor on a key of another run, and notes the place for Publish.
template <typename Key>
void RunStore<Key>::Enter(Spot spot, PlaceId place, Cursor& cursor) {
  const uint32_t holder = HolderOf(spot.run, place);
  Run& run = At(spot.run);
  cursor = {spot.run, spot.offset, &run,
            run.holders.load(std::memory_order_relaxed)->next_at(holder)};
  dirty_.push_back({spot.run, holder});
}

// True if the source holds another hash of this content in the slot behind the cursor.
template <typename Key>
bool RunStore<Key>::HoldsNextOtherwise(const Key& key, BlockName name, SourcePlaces own,
                                       const Cursor& cursor) const {
  const Spot next = {cursor.run, cursor.offset + 1};
  const Run& run = At(cursor.run);
  return name.named() && next.offset < run.used &&
         run.stride.load(std::memory_order_relaxed) == name.stride() &&
         IsNamed(run, next.offset, name) &&
         !(run.keys.load(std::memory_order_relaxed)[next.offset] == key) && IsHeldByAny(next, own);
}

template <typename Key>
Addition RunStore<Key>::Add(const Key& key, BlockName name, const Holding& holding, size_t more,
                            bool follows, Cursor& cursor) {
  const SourcePlaces own = holding.own;
  const bool beside = cursor.next_bits != nullptr && cursor.offset + 1 < kRunKeys &&
                      IsAt(*cursor.at, cursor.offset + 1, key) &&
                      IsNamed(*cursor.at, cursor.offset + 1, name) &&
                      !MayHaveTwin(cursor.run, *cursor.at, cursor.offset + 1);
  if (beside) {
    ++cursor.offset;
  } else {
    Spot found;
    same_hash_.clear();
    bool other_name = false;
    LocatorTable::Room room = nullptr;
    FindWhere(
        key,
        [&](Spot spot) {
          if (IsNamed(At(spot.run), spot.offset, name)) {
            found = spot;
            return !HasTwins();
          }
          same_hash_.push_back(spot);
          other_name = other_name || IsHeldByAny(spot, own);
          return false;
        },
        &room);
    if (other_name) return Addition::kOtherName;
    if (found.run == 0) {
      bool inserts = false;
      const bool behind = (!name.named() || follows) && cursor.run != 0 &&
                          At(cursor.run).stride.load(std::memory_order_relaxed) == name.stride();
      if (behind) {
        if (HoldsNextOtherwise(key, name, own, cursor)) return Addition::kOtherHash;
        found = SpotBehind(key, name, more, cursor);
      }
      if (found.run == 0 && name.named()) {
        if (OwnsRival(key, name, holding)) return Addition::kOtherHash;
        found = DeadHead(key, name);
      }
      if (found.run == 0) {
        found = NewHead(key, name, more, cursor);
        At(found.run).owner = holding.source;
        inserts = name.named();
      }
      Enliven(found);
      if (inserts) InsertHead(found.run);
      table_.Insert(hash_(key), LocatorOf(found), room);
      if (!same_hash_.empty()) {
        twins_.fetch_add(1, std::memory_order_release);  // I9
        MarkTwin(found);
        for (const Spot spot : same_hash_) MarkTwin(spot);
      }
    }
    if (found.run == cursor.run && cursor.next_bits != nullptr) {
      cursor.offset = found.offset;
    } else {
      Enter(found, holding.place, cursor);
    }
  }
  const uint64_t bit = uint64_t{1} << cursor.offset;
  if ((*cursor.next_bits & bit) == 0) {
    *cursor.next_bits |= bit;
    if (holding.copies > 1) AddExtra(key, holding.place, holding.copies - 1);
    return Addition::kFirst;
  }
  if (holding.repeats_count) AddExtra(key, holding.place, holding.copies);
  return Addition::kCopy;
}

template <typename Key>
void RunStore<Key>::AddExtra(const Key& key, PlaceId place, uint32_t copies) {
  if (extras_of_place_.size() <= place) extras_of_place_.resize(place + size_t{1});
  uint32_t& extra = extra_copies_[{place, key}];
  if (extra == 0) ++extras_of_place_[place];
  // The limit leaves room for the first copy, so that the count of all copies fits 32 bits.
  extra += std::min(copies, ~uint32_t{0} - 1 - extra);
}

// True if the place had an extra copy.
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
Removal RunStore<Key>::Remove(const Key& key, PlaceId place, Cursor& cursor, BlockName* name) {
  if (!StepTo(key, true, cursor) || (*cursor.next_bits >> cursor.offset & 1) == 0) {
    const Spot spot = FindHeld(key, place);
    if (spot.run == 0) return Removal::kNotHeld;
    if (spot.run == cursor.run) {
      cursor.offset = spot.offset;
    } else {
      Enter(spot, place, cursor);
      lost_.push_back(spot.run);
    }
  }
  if (name != nullptr) *name = NameAt(*cursor.at, cursor.offset);
  if (RemoveExtra(key, place)) return Removal::kCopiesLeft;
  *cursor.next_bits &= ~(uint64_t{1} << cursor.offset);
  return Removal::kLastCopy;
}

template <typename Key>
uint32_t RunStore<Key>::TakeCopies(const Key& key, PlaceId place) {
  const Spot spot = FindHeld(key, place);
  if (spot.run == 0) return 0;
  uint32_t copies = 1;
  if (place < extras_of_place_.size() && extras_of_place_[place] != 0) {
    const auto extra = extra_copies_.find({place, key});
    if (extra != extra_copies_.end()) {
      copies += extra->second;
      extra_copies_.erase(extra);
      --extras_of_place_[place];
    }
  }
  Cursor cursor;
  Enter(spot, place, cursor);
  lost_.push_back(spot.run);
  *cursor.next_bits &= ~(uint64_t{1} << cursor.offset);
  return copies;
}

template <typename Key>
void RunStore<Key>::Publish() {
  for (const Dirty& dirty : dirty_) {
    if (dirty.holder == kNoHolder) continue;
    // I1: the caller has made the worker's version odd.
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
  // I4: the holder bits of these slots are 0 already.
  run.live.store(run.live.load(std::memory_order_relaxed) & ~dead, std::memory_order_release);
  for (uint64_t rest = dead; rest != 0; rest &= rest - 1) {
    table_.Prefetch(hash_(keys[std::countr_zero(rest)]));
  }
  for (; dead != 0; dead &= dead - 1) {
    const auto offset = static_cast<uint32_t>(std::countr_zero(dead));
    table_.Erase(hash_(keys[offset]), LocatorOf({number, offset}));
    if (!MayHaveTwin(number, run, offset)) continue;
    const bool has_twin = FindWhere(keys[offset], [](Spot) { return true; }).run != 0;
    // I9
    if (has_twin) twins_.fetch_sub(1, std::memory_order_release);
  }
}

// Frees memory that a run does not need any more.
template <typename Key>
void RunStore<Key>::Settle(uint32_t number) {
  const Run& run = At(number);
  const int living = std::popcount(run.live.load(std::memory_order_relaxed));
  if (living > 0 && (run.capacity <= kLeastKeys || living * 4 > run.capacity)) return;
  // The sweep may have passed the number of the new run already. The blocks of closed places must
  // therefore be dropped before the move.
  DropClosed(number);
  const uint64_t live = run.live.load(std::memory_order_relaxed);
  if (live == 0) return FreeRun(number);
  if (run.stride.load(std::memory_order_relaxed) == 0) {
    CopySlots(number, live);
    return FreeRun(number);
  }
  // Dead slots between named blocks stay, because the run must remain a piece of one content chain.
  uint32_t room = 0;
  ForEachStretch(live, [&](uint64_t stretch) {
    room += RoomFor(static_cast<size_t>(std::popcount(stretch)));
  });
  if (room * 2 > run.capacity) return;
  ForEachStretch(live, [&](uint64_t stretch) { CopySlots(number, stretch); });
  FreeRun(number);
}

// Copies these slots into a new run and lets the tables find the new run. The caller must free the
// old run.
template <typename Key>
void RunStore<Key>::CopySlots(uint32_t number, uint64_t slots) {
  const uint32_t stride = At(number).stride.load(std::memory_order_relaxed);
  const uint32_t by = NewRun(RoomFor(static_cast<size_t>(std::popcount(slots))), stride);
  Run& from = At(number);
  Run& to = At(by);
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
  const HolderSet& old_holders = *from.holders.load(std::memory_order_relaxed);
  HolderSet* const holders =
      HolderSet::New(arena_, std::max<uint32_t>(1, old_holders.CountHolders()));
  for (uint32_t i = 0; i < old_holders.size(); ++i) {
    const uint64_t packed = Pack(old_holders.next(i), slots);
    if (packed != 0) holders->Append(old_holders.place(i), packed, packed);
  }
  arena_.Free(to.holders.load(std::memory_order_relaxed));
  // I7
  to.holders.store(holders, std::memory_order_release);
  const uint64_t live = from.live.load(std::memory_order_relaxed) & slots;
  to.live.store(Pack(live, slots), std::memory_order_release);  // I3
  uint32_t offset = 0;
  for (uint64_t rest = slots; rest != 0; rest &= rest - 1, ++offset) {
    const auto old_offset = static_cast<uint32_t>(std::countr_zero(rest));
    if ((live >> old_offset & 1) == 0) continue;
    table_.Replace(hash_(keys[offset]), LocatorOf({number, old_offset}), LocatorOf({by, offset}));
  }
  if (stride != 0) InsertHead(by);
  if (from.has_twins) {
    to.has_twins = true;
    const uint64_t twins = twin_slots_.at(number);
    twin_slots_[by] = Pack(twins, slots);
  }
}

template <typename Key>
void RunStore<Key>::FreeRun(uint32_t number) {
  Run& run = At(number);
  if (run.stride.load(std::memory_order_relaxed) != 0) {
    const ContentKey first = run.contents.load(std::memory_order_relaxed)[0];
    heads_.Erase(hash_(first), LocatorOf({number, 0}));
    named_runs_.fetch_sub(1, std::memory_order_release);  // I9
  }
  if (std::exchange(run.has_twins, false)) twin_slots_.erase(number);
  run.live.store(0, std::memory_order_release);  // I4
  RetireKeys(run.keys.load(std::memory_order_relaxed));
  RetireContents(run.contents.load(std::memory_order_relaxed));
  RetireHolders(run.holders.load(std::memory_order_relaxed));
  // I11: a reader that has this number may still use it, so the number is retired too.
  epochs_.Retire(
      [](void* store, uintptr_t run_number) {
        static_cast<RunStore*>(store)->free_runs_.push_back(static_cast<uint32_t>(run_number));
      },
      this, number);
}

template <typename Key>
std::optional<BlockName> RunStore<Key>::NameOf(const Key& key, SourcePlaces own,
                                               Cursor& cursor) const {
  cursor = {};
  const Spot spot = FindWhere(key, [&](Spot found) { return IsHeldByAny(found, own); });
  if (spot.run == 0) return std::nullopt;
  cursor = {spot.run, spot.offset, &At(spot.run), nullptr};
  return NameAt(At(spot.run), spot.offset);
}

template <typename Key>
void RunStore<Key>::Seek(const Key& key, ContentKey content, Cursor& cursor) const {
  const Spot spot = FindWhere(
      key, [&](Spot found) { return NameAt(At(found.run), found.offset).content() == content; });
  cursor = {};
  if (spot.run != 0) cursor = {spot.run, spot.offset, &At(spot.run), nullptr};
}

template <typename Key>
bool RunStore<Key>::Holds(const Key& key, PlaceId place) const {
  return FindHeld(key, place).run != 0;
}

// Removes the blocks of closed places from this run. True: there were any.
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
