// SPDX-License-Identifier: Apache-2.0
#include "router/index/run_store.h"

#include <algorithm>
#include <utility>

#include "router/index/run_tidying.h"

// Relaxed loads in this file are the writer's own (I0). The invariants are in README.md.
namespace kvcast::router {
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
    // I3: the slot is written before SetLive sets its live bit.
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
  const size_t keys = block.name.proven() ? 1 + block.more : 1;
  const Spot spot = {pool_.New(keys, block.name.stride()), 0};
  Run& run = At(spot.run);
  // I3
  run.keys.load(std::memory_order_relaxed)[0] = block.key;
  if (block.name.named()) run.contents.load(std::memory_order_relaxed)[0] = block.name.content();
  run.used = 1;
  run.end = block.name.end_or_unproven();
  run.owner = block.holding.source;
  return spot;
}

template <typename Key>
void RunStore<Key>::SetLive(Spot spot) {
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
bool RunStore<Key>::HoldsAny(const Run& run, uint64_t slots, SourceHolders own) const {
  const HolderSet& set = *run.holders.load(std::memory_order_relaxed);
  const uint32_t size = set.size();
  if (own.size() <= kFewHolders) {
    return std::any_of(own.begin(), own.end(), [&](HolderId holder) {
      const uint32_t position = set.Find(holder);
      return position < size && (set.next(position) & slots) != 0;
    });
  }
  const HolderTable::Words words = holder_table_.words();
  const uint64_t slot = HolderTable::SlotOf(words.At(own[0]));
  for (uint32_t i = 0; i < size; ++i) {
    const bool owns = HolderTable::SlotOf(words.At(set.id(i))) == slot;
    if (owns && (set.next(i) & slots) != 0 && !holder_table_.IsCondemned(set.id(i))) return true;
  }
  return false;
}

template <typename Key>
bool RunStore<Key>::OwnsRival(const Block& block) {
  heads_met_.clear();
  const bool owns = heads_.Find(hash_(block.name.content()), [&](Locator locator) {
    const uint32_t number = SpotOf(locator).run;
    const Run& run = At(number);
    if (run.owner != block.holding.source ||
        run.stride.load(std::memory_order_relaxed) != block.name.stride() ||
        !IsNamed(run, 0, block.name) || run.keys.load(std::memory_order_relaxed)[0] == block.key) {
      return false;
    }
    heads_met_.push_back(number);
    return HoldsAny(run, ~uint64_t{0}, block.holding.own);
  }) != 0;
  for (const uint32_t number : heads_met_) RetireIfVoid(number);
  return owns;
}

// Gives the run a new holder set without void holders (see IsVoid), and with room for at least one
// more holder.
template <typename Key>
HolderSet& RunStore<Key>::GrowHolders(uint32_t number) {
  Run& run = At(number);
  const HolderSet& set = *run.holders.load(std::memory_order_relaxed);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < set.size(); ++i) kept += !IsVoid(set, i);
  HolderSet* const grown = HolderSet::New(arena_, kept + 1 + kept / 4);
  bool lost = false;
  for (uint32_t i = 0; i < set.size(); ++i) {
    if (!IsVoid(set, i)) {
      grown->Append(set.id(i), set.bits(i), set.next(i));
    } else {
      lost = lost || !set.Empty(i);
    }
  }
  if (lost) lost_.push_back(number);  // the void holders may have been the last holders of a slot
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
  dirty_.push_back({spot.run, position, holder});
}

// True if the source holds the slot behind the cursor, and this slot has another hash of the
// block's content.
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

// Finds the slot of the block. Sets same_hash_ to the slots of the hash with other names, and to
// the slots that do not serve the source. If the source holds the hash under this name, its slot is
// the slot of the block, whatever its stride.
template <typename Key>
typename RunStore<Key>::Known RunStore<Key>::FindKnown(const Block& block) {
  const bool twins = HasTwins(twins_.load(std::memory_order_relaxed));
  Known known;
  same_hash_.clear();
  FindWhere(
      block.key,
      [&](Spot spot) {
        const bool named = IsNamed(At(spot.run), spot.offset, block.name);
        const bool serves = named && Serves(At(spot.run), block.name, block.holding);
        if (serves && !twins) {
          known.spot = spot;
          return true;
        }
        const bool own = IsHeldByAny(spot, block.holding.own);
        if (named && (own || (serves && known.spot.run == 0))) {
          known.spot = spot;
        } else {
          same_hash_.push_back(spot);
          known.held_otherwise = known.held_otherwise || (own && !named);
        }
        return false;
      },
      &known.room);
  std::erase_if(same_hash_, [this](Spot spot) { return RemoveIfVoid(spot); });
  return known;
}

// Makes a live slot for a block that has no slot, and inserts the slot into the tables. Run 0: the
// source holds another hash of this content. REQUIRES: FindKnown was called for this block.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::TakeSlot(const Block& block, LocatorTable::Room room,
                                                     const Cursor& cursor) {
  const bool named = block.name.named();
  const bool behind =
      (!named || block.follows) && cursor.run != 0 && !At(cursor.run).retired &&
      At(cursor.run).stride.load(std::memory_order_relaxed) == block.name.stride() &&
      At(cursor.run).end != BlockName::kUnproven && block.name.proven();
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
  // I9: twins_ counts the slot before the live bit of the slot is set.
  if (!same_hash_.empty()) twins_.fetch_add(kAddTwin, std::memory_order_release);
  SetLive(spot);
  if (begins && named) InsertHead(spot.run);
  table_.Insert(hash_(block.key), LocatorOf(spot), room);
  if (!same_hash_.empty()) {
    MarkTwin(spot);
    for (const Spot twin : same_hash_) MarkTwin(twin);
  }
  return spot;
}

// If the content of the name is proven, marks the content of the slot as proven.
template <typename Key>
void RunStore<Key>::Prove(Spot spot, BlockName name) {
  Run& run = At(spot.run);
  if (run.end == BlockName::kUnproven && name.proven()) run.end = name.end();
}

template <typename Key>
Addition RunStore<Key>::Add(const Key& key, BlockName name, const Holding& holding, size_t more,
                            bool follows, Cursor& cursor) {
  const bool beside =
      cursor.next_bits != nullptr && cursor.offset + 1 < kRunKeys &&
      IsAt(*cursor.at, cursor.offset + 1, key) && IsNamed(*cursor.at, cursor.offset + 1, name) &&
      Serves(*cursor.at, name, holding) && !MayHaveTwin(cursor.run, *cursor.at, cursor.offset + 1);
  if (beside) {
    ++cursor.offset;
  } else {
    const Block block{key, name, holding, more, follows};
    const Known known = FindKnown(block);
    if (known.held_otherwise) return Addition::kOtherName;
    const Spot spot = known.spot.run != 0 ? known.spot : TakeSlot(block, known.room, cursor);
    if (spot.run == 0) return Addition::kOtherHash;
    Prove(spot, name);
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

// Makes the run of the blocks, with the first block. Run 0: the content of the first block is not
// new.
template <typename Key>
typename RunStore<Key>::Spot RunStore<Key>::NewHeadFor(const NewBlocks& blocks,
                                                       const Holding& holding) {
  BlockName name;
  if (!blocks.contents.empty()) name = {blocks.contents[0], blocks.stride, blocks.end};
  const Block block{blocks.keys[0], name, holding, blocks.keys.size() - 1, /*follows=*/false};
  if (name.named() && (OwnsRival(block) || DeadHead(block).run != 0)) return {};
  return NewHead(block);
}

template <typename Key>
size_t RunStore<Key>::AddNew(const NewBlocks& blocks, const Holding& holding, Cursor& cursor) {
  constexpr size_t kAhead = 8;  // see batch_ahead.h
  const auto prefetch = [&](size_t begin) {
    const size_t end = std::min(begin + kAhead, blocks.keys.size());
    for (size_t i = begin; i < end; ++i) Prefetch(blocks.keys[i]);
  };
  const auto any_slot = [](Spot) { return true; };
  prefetch(0);
  Spot spot;
  size_t added = 0;
  for (; added < blocks.keys.size(); ++added) {
    if (added % kAhead == 0) prefetch(added + kAhead);
    const Key& key = blocks.keys[added];
    if (!blocks.contents.empty() && blocks.contents[added] == kUnnamed) break;
    LocatorTable::Room room = nullptr;
    const Spot known = FindWhere(key, any_slot, &room);
    if (known.run != 0) break;
    spot.offset = static_cast<uint32_t>(added);
    if (added == 0) {
      spot = NewHeadFor(blocks, holding);
      if (spot.run == 0) break;
    } else {
      Run& run = At(spot.run);
      // I3: the slot is written before SetLive sets its live bit.
      if (!blocks.contents.empty()) {
        run.contents.load(std::memory_order_relaxed)[added] = blocks.contents[added];
      }
      run.keys.load(std::memory_order_relaxed)[added] = key;
      ++run.used;
    }
    SetLive(spot);
    if (added == 0 && !blocks.contents.empty()) InsertHead(spot.run);
    table_.Insert(hash_(key), LocatorOf(spot), room);
  }
  if (added == 0) return 0;
  spot.offset = static_cast<uint32_t>(added - 1);
  Enter(spot, holding.holder, cursor);
  *cursor.next_bits |= BitRange(0, static_cast<uint32_t>(added));
  return added;
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
    HolderSet& set = *At(dirty.run).holders.load(std::memory_order_relaxed);
    uint32_t position = dirty.position;
    // The set may have been replaced since Enter noted the position.
    if (position >= set.size() || set.id(position) != dirty.holder) {
      position = set.Find(dirty.holder);
    }
    // I1: the caller has made the worker's version odd.
    if (position < set.size()) set.Publish(position);
  }
  dirty_.clear();
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

template class RunStore<uint64_t>;
template class RunStore<BlockHash>;

}  // namespace kvcast::router
