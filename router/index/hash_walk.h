// The walk of RunStore over a chain of hashes (WalkHashes).
//
// Numbers such as I3 in comments are the invariants of README.md in this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "router/index/locator_table.h"
#include "router/index/run_store.h"

namespace kvcast::router {

// True if eight keys are equal.
inline bool EqualEight(const uint64_t* a, const uint64_t* b) {
#ifdef KVCAST_SSE2
  __m128i difference = _mm_setzero_si128();
  for (int i = 0; i < 8; i += 2) {
    const __m128i left = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i));
    const __m128i right = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i));
    difference = _mm_or_si128(difference, _mm_xor_si128(left, right));
  }
  return _mm_movemask_epi8(_mm_cmpeq_epi8(difference, _mm_setzero_si128())) == 0xFFFF;
#else
  uint64_t difference = 0;
  for (int i = 0; i < 8; ++i) difference |= a[i] ^ b[i];
  return difference == 0;
#endif
}

// One walk of WalkHashes.
template <typename Key>
template <typename Hash, typename Visit>
struct RunStore<Key>::HashWalk {
  const RunStore& store;
  const std::span<const Hash> chain;
  const bool until_gap;
  const bool unnamed_only;
  Visit& visit;
  Spot near{};   // expected slot of the next key: the slot after the last match
  Spot after{};  // second expected slot: the first slot of the run that continues the run of the
                 // last match

  decltype(auto) KeyAt(size_t position) const { return KeyForm<Key>::Of(chain[position]); }
  bool IsWanted(Spot spot) const {
    return !unnamed_only || store.At(spot.run).stride.load(std::memory_order_acquire) == 0;  // I3
  }
  // Returns the expected slot that has the key. Run 0: no expected slot has the key.
  Spot Expected(const Key& key) const {
    const auto is_at = [&](Spot spot) {
      return spot.run != 0 && store.IsAt(store.At(spot.run), spot.offset, key) && IsWanted(spot);
    };
    return is_at(near) ? near : is_at(after) ? after : Spot();
  }

  // Returns the number of leading keys that are equal to the chain from `position` on: at most
  // `most`, but at least 1. REQUIRES: the first key is equal. If the writer has cleared the live
  // bit of the first key since the lookup, `most` is 0. The first key then still counts, because
  // the published bits of its slot are correct (I4).
  size_t EqualKeys(const Key* keys, size_t position, size_t most) const {
    size_t length = 0;
    if constexpr (std::is_same_v<Hash, Key> && std::is_same_v<Key, uint64_t>) {
      const uint64_t* const wanted = chain.data() + position;
      while (length + 8 <= most && EqualEight(keys + length, wanted + length)) length += 8;
    }
    length = std::max<size_t>(length, 1);
    while (length < most && keys[length] == KeyAt(position + length)) ++length;
    return length;
  }
  // Prefetches the arrays of a run. `keys`: the number of keys that VisitFrom may need from the
  // run. The run may have been freed (I6). This is safe, because a prefetch may use any address.
  static void PrefetchRun(const Run& run, size_t keys) {
    constexpr size_t kLine = 64;
    const auto* const array =
        reinterpret_cast<const char*>(run.keys.load(std::memory_order_relaxed));
    const size_t bytes = std::min<size_t>(keys, kRunKeys) * sizeof(Key);
    for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(array + i);
    HolderSet::Prefetch(run.holders.load(std::memory_order_relaxed));
  }

  // Visits the slots from `spot` on whose keys are equal to the chain from `position` on. Returns
  // the number of these slots.
  size_t VisitFrom(Spot spot, size_t position) {
    const Run& run = store.At(spot.run);
    const uint64_t live = run.live.load(std::memory_order_acquire) >> spot.offset;   // I3
    const Key* const keys = run.keys.load(std::memory_order_acquire) + spot.offset;  // I3
    const uint32_t next = run.next.load(std::memory_order_acquire);                  // I6
    const HolderSet* const set = run.holders.load(std::memory_order_acquire);        // I7
    HolderSet::Prefetch(set);
    if (next != 0) __builtin_prefetch(&store.At(next));
    const size_t most =
        std::min<size_t>(chain.size() - position, static_cast<size_t>(std::countr_one(live)));
    const size_t length = EqualKeys(keys, position, most);
    if (next != 0) PrefetchRun(store.At(next), chain.size() - position - length);
    visit(*set, spot.offset, position, static_cast<uint32_t>(length));
    near = {spot.run, static_cast<uint32_t>(spot.offset + length)};
    after = {next, 0};
    if (near.offset == kRunKeys) near = {};
    return length;
  }

  // Visits one slot of each hash.
  void VisitSingles(size_t begin) {
    constexpr size_t kAhead = 12;  // number of keys to prefetch after a key without a slot
    size_t fetched = begin;
    bool missed = false;
    for (size_t position = begin; position < chain.size();) {
      const Key& first = KeyAt(position);
      Spot spot = Expected(first);
      if (spot.run == 0) {
        if (missed) {
          const size_t until = std::min(chain.size(), position + kAhead);
          for (fetched = std::max(fetched, position + 1); fetched < until; ++fetched) {
            store.Prefetch(KeyAt(fetched));
          }
        }
        spot = store.FindWhere(first, [&](Spot found) { return IsWanted(found); });
        missed = spot.run == 0;
        if (missed) {
          if (until_gap) return;
          near = after = {};
          ++position;
          continue;
        }
      }
      position += VisitFrom(spot, position);
    }
  }

  // Visits all slots of each hash. A hash may have several slots, each with its own holders.
  void VisitTwins(size_t begin) {
    std::vector<Spot> slots;  // of the hash at the current position
    struct Stretch {
      uint32_t run;
      uint32_t offset;
      size_t begin;
      size_t end;
    };
    std::vector<Stretch> stretches;
    for (size_t position = begin; position < chain.size(); ++position) {
      slots.clear();
      store.FindWhere(KeyAt(position), [&](Spot spot) {
        slots.push_back(spot);
        return false;
      });
      if (slots.empty() && until_gap) return;
      std::erase_if(stretches, [&](const Stretch& s) { return s.end <= position; });
      for (const Spot spot : slots) {
        const bool covered = std::any_of(stretches.begin(), stretches.end(), [&](const Stretch& s) {
          return s.run == spot.run && s.offset + (position - s.begin) == spot.offset;
        });
        if (covered) continue;
        const size_t length = VisitFrom(spot, position);
        stretches.push_back({spot.run, spot.offset, position, position + length});
      }
    }
  }
};

template <typename Key>
template <typename Hash, typename Visit>
void RunStore<Key>::WalkHashes(std::span<const Hash> chain, size_t begin, bool until_gap,
                               bool unnamed_only, Visit&& visit) const {
  HashWalk<Hash, std::remove_reference_t<Visit>> walk{*this, chain, until_gap, unnamed_only, visit};
  // A hash has at most one unnamed slot.
  if (unnamed_only) return walk.VisitSingles(begin);
  const uint64_t twins = twins_.load(std::memory_order_acquire);  // I9
  if (!HasTwins(twins)) {
    walk.VisitSingles(begin);
    // I9: the walk may have missed a second slot of a hash.
    if (twins_.load(std::memory_order_acquire) == twins) return;
  }
  walk.VisitTwins(begin);
}

}  // namespace kvcast::router
