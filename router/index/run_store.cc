// SPDX-License-Identifier: Apache-2.0
#include "router/index/run_store.h"

#include <algorithm>
#include <array>
#include <utility>

// Relaxed loads in this file are the writer's own (I0). The invariants are in README.md.
namespace kvcast::router {
namespace {

// A run of named blocks is cut at each gap of at least this number of slots that no holder has.
constexpr uint32_t kCutGap = kLeastRunKeys;

// Cuts `live` at gaps of at least kCutGap slots. Calls `visit(mask)` for each stretch.
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
BlockName RunStore<Key>::NameAt(const Run& run, uint32_t offset) {
  const uint32_t stride = run.stride.load(std::memory_order_relaxed);
  if (stride == 0) return {};
  return {run.contents.load(std::memory_order_relaxed)[offset], stride,
          run.end == 0 ? 0 : run.end + offset * stride};
}

// Returns the slot behind the cursor if the slot is unused, or if it is dead and belongs to this
// block. Run 0: there is no such slot. REQUIRES: the stride of the run is the stride of the name.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::SpotBehind(const Block& block, const Cursor& cursor) {
  if (cursor.offset + 1 >= kRunKeys) return {};
  Run& run = At(cursor.run);
  const uint32_t next = cursor.offset + 1;
  if (next == run.used) {
    if (run.used == run.capacity) {
      pool_.Grow(run, std::max<size_t>(2 * size_t{run.capacity}, run.used + 1 + block.more));
    }
    // I3: the slot is written before Enliven sets its live bit.
    if (block.name.named()) {
      run.contents.load(std::memory_order_relaxed)[run.used] = block.name.content();
    }
    run.keys.load(std::memory_order_relaxed)[run.used++] = block.key;
    return {cursor.run, next};
  }
  const bool was_there = (run.live.load(std::memory_order_relaxed) >> next & 1) == 0 &&
                         run.keys.load(std::memory_order_relaxed)[next] == block.key &&
                         IsNamed(run, next, block.name);
  return was_there ? Spot{cursor.run, next} : Spot{};
}

// Returns the first slot of a run that begins with this block, if no holder has that block.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::DeadHead(const Block& block) const {
  return SpotOf(heads_.Find(hash_(block.name.content()), [&](Locator locator) {
    const Run& run = At(SpotOf(locator).run);
    return run.stride.load(std::memory_order_relaxed) == block.name.stride() &&
           IsNamed(run, 0, block.name) &&
           run.keys.load(std::memory_order_relaxed)[0] == block.key &&
           (run.live.load(std::memory_order_relaxed) & 1) == 0;
  }));
}

template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::NewHead(const Block& block) {
  const Spot spot = {pool_.New(1 + block.more, block.name.stride()), 0};
  Run& run = At(spot.run);
  // I3
  run.keys.load(std::memory_order_relaxed)[0] = block.key;
  if (block.name.named()) run.contents.load(std::memory_order_relaxed)[0] = block.name.content();
  run.used = 1;
  run.end = block.name.end();
  run.owner = block.holding.source;
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
bool RunStore<Key>::HoldsAny(const Run& run, SourceHolders own) {
  const HolderSet& set = *run.holders.load(std::memory_order_relaxed);
  return std::any_of(own.begin(), own.end(), [&](HolderId holder) {
    const uint32_t position = set.Find(holder);
    return position < set.size() && set.next(position) != 0;
  });
}

template <typename Key>
bool RunStore<Key>::OwnsRival(const Block& block) const {
  return heads_.Find(hash_(block.name.content()), [&](Locator locator) {
    const Run& run = At(SpotOf(locator).run);
    return run.owner == block.holding.source &&
           run.stride.load(std::memory_order_relaxed) == block.name.stride() &&
           IsNamed(run, 0, block.name) &&
           !(run.keys.load(std::memory_order_relaxed)[0] == block.key) &&
           HoldsAny(run, block.holding.own);
  }) != 0;
}

// Gives the run a new holder set with the holders that are not empty, and room for one more.
template <typename Key>
HolderSet& RunStore<Key>::GrowHolders(uint32_t number) {
  Run& run = At(number);
  HolderSet* const set = run.holders.load(std::memory_order_relaxed);
  const uint32_t holding = set->CountHolders();
  HolderSet* const grown = HolderSet::New(arena_, holding + 1 + holding / 4);
  std::vector<uint32_t> moved(set->size(), kNoPosition);
  for (uint32_t i = 0; i < set->size(); ++i) {
    if (set->Empty(i)) continue;
    moved[i] = grown->size();
    grown->Append(set->id(i), set->bits(i), set->next(i));
  }
  for (auto& [dirty_run, position] : dirty_) {
    if (dirty_run == number && position != kNoPosition) position = moved[position];
  }
  pool_.ReplaceHolders(run, grown);
  return *grown;
}

// Returns the position of the holder in the run's set. Adds the holder if it is missing.
template <typename Key>
uint32_t RunStore<Key>::PositionOf(uint32_t number, HolderId holder) {
  HolderSet* set = At(number).holders.load(std::memory_order_relaxed);
  const uint32_t found = set->Find(holder);
  if (found < set->size()) return found;
  if (set->size() == set->capacity()) set = &GrowHolders(number);
  set->Append(holder, 0, 0);
  return set->size() - 1;
}

// Puts the cursor on a slot of another run, and notes the holder for Publish.
template <typename Key>
void RunStore<Key>::Enter(Spot spot, HolderId holder, Cursor& cursor) {
  const uint32_t position = PositionOf(spot.run, holder);
  Run& run = At(spot.run);
  cursor = {spot.run, spot.offset, &run,
            run.holders.load(std::memory_order_relaxed)->next_at(position)};
  dirty_.push_back({spot.run, position});
}

// True if the source holds the slot behind the cursor, and it has another hash of this content.
template <typename Key>
bool RunStore<Key>::HoldsNextOtherwise(const Block& block, const Cursor& cursor) const {
  const Spot next = {cursor.run, cursor.offset + 1};
  const Run& run = At(cursor.run);
  return block.name.named() && next.offset < run.used &&
         run.stride.load(std::memory_order_relaxed) == block.name.stride() &&
         IsNamed(run, next.offset, block.name) &&
         !(run.keys.load(std::memory_order_relaxed)[next.offset] == block.key) &&
         IsHeldByAny(next, block.holding.own);
}

// Finds the slot of the block. Sets same_hash_ to the slots of the hash with other names.
template <typename Key>
typename RunStore<Key>::Known RunStore<Key>::FindKnown(const Block& block) {
  Known known;
  same_hash_.clear();
  FindWhere(
      block.key,
      [&](Spot spot) {
        if (IsNamed(At(spot.run), spot.offset, block.name)) {
          known.spot = spot;
          return !HasTwins(twins_.load(std::memory_order_relaxed));
        }
        same_hash_.push_back(spot);
        known.held_otherwise = known.held_otherwise || IsHeldByAny(spot, block.holding.own);
        return false;
      },
      &known.room);
  return known;
}

// Makes a live slot for a block that has no slot, and inserts the slot into the tables. Run 0: the
// source holds another hash of this content. REQUIRES: FindKnown was called for this block.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::TakeSlot(const Block& block, LocatorTable::Room room,
                                                     const Cursor& cursor) {
  const bool named = block.name.named();
  const bool behind = (!named || block.follows) && cursor.run != 0 &&
                      At(cursor.run).stride.load(std::memory_order_relaxed) == block.name.stride();
  Spot spot;
  if (behind) {
    if (HoldsNextOtherwise(block, cursor)) return {};
    spot = SpotBehind(block, cursor);
  }
  if (spot.run == 0 && named) {
    if (OwnsRival(block)) return {};
    spot = DeadHead(block);
  }
  const bool begins = spot.run == 0;
  if (begins) spot = NewHead(block);
  // I9: before the live bit.
  if (!same_hash_.empty()) twins_.fetch_add(kAddTwin, std::memory_order_release);
  Enliven(spot);
  if (begins && named) InsertHead(spot.run);
  table_.Insert(hash_(block.key), LocatorOf(spot), room);
  if (!same_hash_.empty()) {
    MarkTwin(spot);
    for (const Spot twin : same_hash_) MarkTwin(twin);
  }
  return spot;
}

template <typename Key>
Addition RunStore<Key>::Add(const Key& key, BlockName name, const Holding& holding, size_t more,
                            bool follows, Cursor& cursor) {
  const bool beside = cursor.next_bits != nullptr && cursor.offset + 1 < kRunKeys &&
                      IsAt(*cursor.at, cursor.offset + 1, key) &&
                      IsNamed(*cursor.at, cursor.offset + 1, name) &&
                      !MayHaveTwin(cursor.run, *cursor.at, cursor.offset + 1);
  if (beside) {
    ++cursor.offset;
  } else {
    const Block block{key, name, holding, more, follows};
    const Known known = FindKnown(block);
    if (known.held_otherwise) return Addition::kOtherName;
    const Spot spot = known.spot.run != 0 ? known.spot : TakeSlot(block, known.room, cursor);
    if (spot.run == 0) return Addition::kOtherHash;
    if ((follows || !name.named()) && cursor.run != 0 && spot.offset == 0) {
      SetNext(At(cursor.run), spot.run);
    }
    if (spot.run == cursor.run && cursor.next_bits != nullptr) {
      cursor.offset = spot.offset;
    } else {
      Enter(spot, holding.holder, cursor);
    }
  }
  const uint64_t bit = uint64_t{1} << cursor.offset;
  if ((*cursor.next_bits & bit) == 0) {
    *cursor.next_bits |= bit;
    if (holding.copies > 1) copies_.Add(key, holding.holder, holding.copies - 1);
    return Addition::kFirst;
  }
  if (holding.repeats_count) copies_.Add(key, holding.holder, holding.copies);
  return Addition::kCopy;
}

template <typename Key>
Removal RunStore<Key>::Remove(const Key& key, HolderId holder, Cursor& cursor, BlockName* name) {
  if (!StepTo(key, true, cursor) || (*cursor.next_bits >> cursor.offset & 1) == 0) {
    const Spot spot = FindHeld(key, holder);
    if (spot.run == 0) return Removal::kNotHeld;
    if (spot.run == cursor.run) {
      cursor.offset = spot.offset;
    } else {
      Enter(spot, holder, cursor);
      lost_.push_back(spot.run);
    }
  }
  if (name != nullptr) *name = NameAt(*cursor.at, cursor.offset);
  if (copies_.RemoveOne(key, holder)) return Removal::kCopiesLeft;
  *cursor.next_bits &= ~(uint64_t{1} << cursor.offset);
  return Removal::kLastCopy;
}

template <typename Key>
uint32_t RunStore<Key>::TakeCopies(const Key& key, HolderId holder) {
  const Spot spot = FindHeld(key, holder);
  if (spot.run == 0) return 0;
  const uint32_t copies = 1 + copies_.Take(key, holder);
  Cursor cursor;
  Enter(spot, holder, cursor);
  lost_.push_back(spot.run);
  *cursor.next_bits &= ~(uint64_t{1} << cursor.offset);
  return copies;
}

template <typename Key>
void RunStore<Key>::Publish() {
  for (const Dirty& dirty : dirty_) {
    if (dirty.position == kNoPosition) continue;
    // I1: the caller has made the worker's version odd.
    At(dirty.run).holders.load(std::memory_order_relaxed)->Publish(dirty.position);
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

// Frees the run if it is empty. Moves its blocks to smaller runs if most of its slots are dead.
template <typename Key>
void RunStore<Key>::Settle(uint32_t number) {
  const Run& run = At(number);
  const int living = std::popcount(run.live.load(std::memory_order_relaxed));
  if (living > 0 && (run.capacity <= kLeastRunKeys || living * 4 > run.capacity)) return;
  // The sweep may have passed the number of the new run already. The blocks of closed holders must
  // therefore be removed before the move.
  DropClosed(number);
  const uint64_t live = run.live.load(std::memory_order_relaxed);
  if (run.stride.load(std::memory_order_relaxed) == 0) {
    if (live != 0) CopySlots(number, live);
  } else if (live == 0) {
    EraseHead(number);
  } else if (!MoveNamed(number, live)) {
    return;
  }
  FreeRun(number);
}

// Moves the blocks of a run of named blocks to new runs. The caller must free the old run. False:
// the new runs would be too large, so nothing was moved.
template <typename Key>
bool RunStore<Key>::MoveNamed(uint32_t number, uint64_t live) {
  const Run& run = At(number);
  uint32_t room = 0;
  ForEachStretch(live, [&](uint64_t stretch) {
    room += RunPool<Key>::RoomFor(static_cast<size_t>(std::popcount(stretch)));
  });
  if (room * 2 > run.capacity) return false;
  // Dead slots within a stretch stay, because the new run must be a piece of one content chain.
  std::array<uint32_t, kRunKeys / kCutGap> moved;
  size_t runs = 0;
  ForEachStretch(live, [&](uint64_t stretch) { moved[runs++] = CopySlots(number, stretch); });
  // I1: a walk by content may meet both the old run and a new run, or none of them. A walk by hash
  // meets each block once, or twice with the same holders (I5).
  const HolderSet& set = *run.holders.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < set.size(); ++i) {
    if (!set.Empty(i)) holder_table_.BeginMove(set.id(i));
  }
  for (size_t i = 0; i < runs; ++i) InsertHead(moved[i]);
  EraseHead(number);
  holder_table_.EndMove();
  return true;
}

// Copies these slots to a new run, and replaces their entries in the table of hashes. The caller
// must insert the head of a named run and free the old run. Returns the number of the new run.
template <typename Key>
uint32_t RunStore<Key>::CopySlots(uint32_t number, uint64_t slots) {
  const uint32_t by = pool_.CopyOf(number, slots);
  const Run& from = At(number);
  Run& to = At(by);
  const Key* const keys = to.keys.load(std::memory_order_relaxed);
  const uint64_t live = from.live.load(std::memory_order_relaxed);
  uint32_t offset = 0;
  for (uint64_t rest = slots; rest != 0; rest &= rest - 1, ++offset) {
    const auto old_offset = static_cast<uint32_t>(std::countr_zero(rest));
    if ((live >> old_offset & 1) == 0) continue;
    table_.Replace(hash_(keys[offset]), LocatorOf({number, old_offset}), LocatorOf({by, offset}));
  }
  if (from.has_twins) {
    to.has_twins = true;
    const uint64_t twins = twin_slots_.at(number);
    twin_slots_[by] = PackBits(twins, slots);
  }
  return by;
}

template <typename Key>
void RunStore<Key>::EraseHead(uint32_t number) {
  const ContentKey first = At(number).contents.load(std::memory_order_relaxed)[0];
  heads_.Erase(hash_(first), LocatorOf({number, 0}));
  named_runs_.fetch_sub(1, std::memory_order_release);  // I9
}

// REQUIRES: no table has an entry of the run.
template <typename Key>
void RunStore<Key>::FreeRun(uint32_t number) {
  Run& run = At(number);
  if (std::exchange(run.has_twins, false)) twin_slots_.erase(number);
  pool_.Free(number);
}

template <typename Key>
std::optional<BlockName> RunStore<Key>::NameOf(const Key& key, SourceHolders own,
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
bool RunStore<Key>::Holds(const Key& key, HolderId holder) const {
  return FindHeld(key, holder).run != 0;
}

// Removes the blocks of closed holders from this run. True: the run had such blocks.
template <typename Key>
bool RunStore<Key>::DropClosed(uint32_t number) {
  const Run& run = At(number);
  HolderSet& set = *run.holders.load(std::memory_order_relaxed);
  bool dropped = false;
  for (uint32_t i = 0; i < set.size(); ++i) {
    if (set.Empty(i) || holder_table_.Read(set.id(i))) continue;
    *set.next_at(i) = 0;
    set.Publish(i);
    dropped = true;
  }
  if (dropped) KillMany(number, run.live.load(std::memory_order_relaxed) & ~set.Union());
  return dropped;
}

template <typename Key>
bool RunStore<Key>::Sweep(size_t runs) {
  for (; runs > 0 && sweep_next_ < pool_.end(); --runs) {
    const uint32_t number = sweep_next_++;
    if (At(number).live.load(std::memory_order_relaxed) != 0 && DropClosed(number)) Settle(number);
  }
  return sweep_next_ < pool_.end();
}

template <typename Key>
void RunStore<Key>::EndSweep() {
  copies_.DropClosed(holder_table_);
}

template class RunStore<uint64_t>;
template class RunStore<BlockHash>;

}  // namespace kvcast::router
