// The functions of RunStore that remove dead slots and empty runs from the store. Included by
// run_store.cc.
//
// The blocks of a closed holder stay until the sweep. The blocks that a batch adds and removes
// again stay until Tidy. If a source made many such blocks for one hash or one content, each search
// for that hash or content would visit all these blocks. So Add removes the blocks of this kind
// that it finds (RemoveVoid), before it adds a block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "router/index/run_store.h"

// Relaxed loads in this file are the writer's own (I0). The invariants are in README.md.
namespace kvcast::router {

// A run of named blocks is cut at each gap of at least this number of slots that no holder has.
inline constexpr uint32_t kCutGap = kLeastRunKeys;

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

// The pool frees the memory of live runs only. After changes without a Tidy, there may be empty
// runs that are not freed. For example, a batch does not tidy while another batch is paused.
template <typename Key>
RunStore<Key>::~RunStore() {
  for (const uint32_t number : runs_to_tidy_) {
    const Run& run = At(number);
    if (!run.retired && run.live.load(std::memory_order_relaxed) == 0) Retire(number);
  }
  for (const uint32_t number : retired_) FreeRun(number);
}

template <typename Key>
void RunStore<Key>::Tidy() {
  for (const uint32_t number : runs_to_tidy_) {
    if (At(number).retired) continue;
    if (At(number).live.load(std::memory_order_relaxed) == 0) {
      Retire(number);
    } else {
      Settle(number);
    }
  }
  runs_to_tidy_.clear();
  for (const uint32_t number : retired_) FreeRun(number);
  retired_.clear();
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
  // I1: a walk by content may meet both the old run and a new run, or neither. A walk by hash
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
  const uint32_t copy = pool_.CopyOf(number, slots);
  for (RunPass* const pass : passes_) pass->NoteMove(number, copy);
  const Run& from = At(number);
  Run& to = At(copy);
  const Key* const keys = to.keys.load(std::memory_order_relaxed);
  const uint64_t live = from.live.load(std::memory_order_relaxed);
  uint32_t offset = 0;
  for (uint64_t rest = slots; rest != 0; rest &= rest - 1, ++offset) {
    const auto old_offset = static_cast<uint32_t>(std::countr_zero(rest));
    if ((live >> old_offset & 1) == 0) continue;
    table_.Replace(hash_(keys[offset]), LocatorOf({number, old_offset}), LocatorOf({copy, offset}));
  }
  if (from.has_twins) {
    to.has_twins = true;
    const uint64_t twins = twin_slots_.at(number);
    twin_slots_[copy] = PackBits(twins, slots);
  }
  return copy;
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
  run.retired = true;
  if (std::exchange(run.has_twins, false)) twin_slots_.erase(number);
  for (RunPass* const pass : passes_) pass->NoteFree(number);
  pool_.Free(number);
}

// A holder is void in three cases: it has no bits; it is closed; the batch is going to close it,
// and it has no published bits.
template <typename Key>
bool RunStore<Key>::IsVoid(const HolderSet& set, uint32_t i) const {
  if (set.Empty(i) || !holder_table_.Read(set.id(i))) return true;
  return holder_table_.IsCondemned(set.id(i)) && set.bits(i) == 0;
}

// Removes these slots from the table of hashes. Tidy then retires or settles the run. REQUIRES:
// only void holders have these slots.
template <typename Key>
void RunStore<Key>::RemoveVoid(uint32_t number, uint64_t slots) {
  HolderSet& set = *At(number).holders.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < set.size(); ++i) {
    if ((set.next(i) & slots) == 0 && (set.bits(i) & slots) == 0) continue;
    *set.next_at(i) &= ~slots;
    // The next bits of a holder that is still open are not published before the end of the batch.
    if (!holder_table_.Read(set.id(i))) set.Publish(i);
  }
  KillMany(number, slots);
  runs_to_tidy_.push_back(number);
}

// True: the slot was removed.
template <typename Key>
bool RunStore<Key>::RemoveIfVoid(Spot spot) {
  const HolderSet& set = *At(spot.run).holders.load(std::memory_order_relaxed);
  const uint64_t bit = uint64_t{1} << spot.offset;
  for (uint32_t i = 0; i < set.size(); ++i) {
    if (((set.next(i) | set.bits(i)) & bit) != 0 && !IsVoid(set, i)) return false;
  }
  RemoveVoid(spot.run, bit);
  return true;
}

// If only void holders have blocks of the run, removes the run from the tables. REQUIRES: the
// blocks of the run are named.
template <typename Key>
void RunStore<Key>::RetireIfVoid(uint32_t number) {
  const Run& run = At(number);
  const HolderSet& set = *run.holders.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < set.size(); ++i) {
    if (!IsVoid(set, i)) return;
  }
  if (const uint64_t live = run.live.load(std::memory_order_relaxed)) RemoveVoid(number, live);
  Retire(number);
}

// Removes the head of an empty run. Tidy frees the run.
template <typename Key>
void RunStore<Key>::Retire(uint32_t number) {
  Run& run = At(number);
  if (run.stride.load(std::memory_order_relaxed) != 0) EraseHead(number);
  run.retired = true;
  retired_.push_back(number);
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
bool RunStore<Key>::Sweep(size_t& work) {
  while (work > 0 && sweep_next_ < pool_.end()) {
    const uint32_t number = sweep_next_++;
    const std::atomic<uint64_t>& live = At(number).live;
    const uint64_t before = live.load(std::memory_order_relaxed);
    size_t done = 1;
    if (before != 0 && DropClosed(number)) {
      const uint64_t after = live.load(std::memory_order_relaxed);
      done += static_cast<size_t>(std::popcount(before & ~after));
      Settle(number);
    }
    work -= std::min(work, done);
  }
  return sweep_next_ < pool_.end();
}

template <typename Key>
void RunStore<Key>::EndSweep() {
  copies_.DropClosed(holder_table_);
}

}  // namespace kvcast::router
