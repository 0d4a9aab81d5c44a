// RunStore: keys of one form, and who holds them, in runs.
//
// Blocks of a prompt are stored, asked for and removed next to each other. So keys that were stored
// one after the other lie side by side, up to 64 in a run; a run has one bitmap for each place that
// holds any of its keys, and a table finds a key that no neighbour leads to. Neighbourhood is where
// to look first and nothing more: an answer never depends on it.
//
// A batch is prepared where readers do not look: keys without holders, and bits that are next. Then
// Publish lets them see it, a word at a time and no more work than that, and Tidy gives back what
// nobody holds any more.
//
// A key's position in a run is its own for as long as the run lives, and its bit in `live` says
// whether anybody holds it. A run that has lost most of its keys is written anew, smaller.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/block_hash_value.h"
#include "router/holder_set.h"
#include "router/locator_table.h"
#include "router/place_table.h"
#include "router/seeded_hash.h"
#include "src/base/epoch.h"

namespace kvcast::router {

enum class Removal : uint8_t { kNotHeld, kCopiesLeft, kLastCopy };

// Key: uint64_t for the forms of hashes that are integers, BlockHash for byte strings. KeyForm
// picks what is stored of a hash.
template <typename Key>
struct KeyForm;
template <>
struct KeyForm<uint64_t> {
  static uint64_t Of(const BlockHash& hash) { return hash.integer(); }
};
template <>
struct KeyForm<BlockHash> {
  static const BlockHash& Of(const BlockHash& hash) { return hash; }
};

// One writer at a time. What says so: any thread that is pinned in `epochs`, beside the writer.
template <typename Key>
class RunStore {
  struct Run;

 public:
  static constexpr uint32_t kRunKeys = 64;

  // Where a writer was last: the next key is looked for beside it. Valid for the calls that pass it
  // on, as long as no others come between them but removals.
  struct Cursor {
    uint32_t run = 0;  // 0: nowhere
    uint32_t offset = 0;
    Run* at = nullptr;              // the run
    uint64_t* next_bits = nullptr;  // in the run, of the place that was asked for
  };

  RunStore(uint64_t seed, SlabArena& arena, EpochDomain& epochs, const PlaceTable& places)
      : hash_{seed},
        arena_(arena),
        epochs_(epochs),
        places_(places),
        table_(arena, epochs),
        extra_copies_(0, PlaceKeyHash{{seed}}) {}
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  // Until Publish, readers do not see what Add and Remove change; the writer's other calls do.
  // Adds a copy. True: the place did not hold the key. `more` keys will follow this one.
  bool Add(const Key& key, PlaceId place, size_t more, Cursor& cursor);
  Removal Remove(const Key& key, PlaceId place, Cursor& cursor);
  void Publish();
  // REQUIRES: all is published.
  void Tidy();
  // Puts the cursor on the key if anybody holds it, else nowhere.
  void Seek(const Key& key, Cursor& cursor) const;
  bool Holds(const Key& key, PlaceId place) const;
  void PrefetchPath(const Key& key) const { table_.PrefetchPath(hash_(key)); }
  void Prefetch(const Key& key) const { table_.Prefetch(hash_(key)); }

  // Takes from closed places what they hold, in up to `runs` runs. False: all runs were looked at
  // since BeginSweep. REQUIRES: all is published.
  void BeginSweep() { sweep_next_ = 1; }
  bool Sweep(size_t runs);
  void EndSweep();

  // Calls `visit(place, key, copies)` for everything that is held, closed places included.
  template <typename Visit>
  void ForEach(Visit&& visit) const;

  // Readers. For every stretch of `chain` whose keys lie side by side, from position `begin` on:
  // `visit(holders, offset, position, length)`: bit offset + i of a holder is chain[position + i].
  // Keys that nobody holds are passed over, or with `until_gap` end the walk.
  template <typename Visit>
  void Walk(std::span<const BlockHash> chain, size_t begin, bool until_gap, Visit&& visit) const;

  uint64_t size() const { return table_.size(); }  // writer: distinct keys

 private:
  static constexpr uint32_t kNoHolder = ~uint32_t{0};
  static constexpr uint32_t kRunBits = 6;
  static constexpr size_t kSegmentRuns = 1024;

  // 32 bytes. Readers look at `live` first: a bit that they see there is of a key that they see.
  struct Run {
    std::atomic<uint64_t> live{0};
    std::atomic<Key*> keys{nullptr};
    std::atomic<HolderSet*> holders{nullptr};
    std::atomic<uint32_t> next{0};  // the run that was begun behind this one, if it is there yet
    uint8_t used = 0;               // writer
    uint8_t capacity = 0;           // writer; of keys
  };
  struct Spot {
    uint32_t run = 0;
    uint32_t offset = 0;
  };
  struct Dirty {  // a holder whose next bits are not published
    uint32_t run;
    uint32_t holder;
  };
  using Directory = std::atomic<Run*>;

  struct PlaceKeyHash {
    SeededHash hash;
    size_t operator()(const std::pair<PlaceId, Key>& place_key) const {
      return hash(place_key.second) ^ hash(uint64_t{place_key.first});
    }
  };

  static Locator LocatorOf(Spot spot) { return Locator{spot.run} << kRunBits | spot.offset; }
  static Spot SpotOf(Locator locator) {
    return {static_cast<uint32_t>(locator >> kRunBits),
            static_cast<uint32_t>(locator & (kRunKeys - 1))};
  }
  Run& At(uint32_t run) const {
    return directory_.load(std::memory_order_acquire)[run / kSegmentRuns].load(
        std::memory_order_acquire)[run % kSegmentRuns];
  }
  // Whether the key lies there now.
  bool IsAt(const Run& run, uint32_t offset, const Key& key) const {
    return (run.live.load(std::memory_order_acquire) >> offset & 1) != 0 &&
           run.keys.load(std::memory_order_acquire)[offset] == key;
  }
  bool StepTo(const Key& key, bool backwards, Cursor& cursor) const;
  auto HasKey(const Key& key) const {
    return [this, &key](Locator locator) {
      const Spot spot = SpotOf(locator);
      return At(spot.run).keys.load(std::memory_order_acquire)[spot.offset] == key;
    };
  }
  Spot Find(const Key& key) const { return SpotOf(table_.Find(hash_(key), HasKey(key))); }
  Spot FindOrInsert(const Key& key, size_t more, const Cursor& cursor);
  Spot NewSpot(const Key& key, size_t more, const Cursor& cursor);
  uint32_t NewRun(uint32_t capacity);
  void GrowKeys(Run& run, uint32_t capacity);
  void AddSegment();
  uint32_t HolderOf(uint32_t run, PlaceId place);
  HolderSet& GrowHolders(uint32_t run);
  void Enter(Spot spot, PlaceId place, Cursor& cursor);
  void AddExtra(const Key& key, PlaceId place);
  bool RemoveExtra(const Key& key, PlaceId place);
  void KillMany(uint32_t run, uint64_t dead);
  void Settle(uint32_t run);
  void Rewrite(uint32_t run);
  void FreeRun(uint32_t run);
  bool DropClosed(uint32_t run);
  Key* NewKeys(uint32_t capacity);
  static void FreeKeys(void* arena, uintptr_t keys);
  static void FreeInArena(void* arena, uintptr_t object);
  void RetireKeys(Key* keys);
  void RetireHolders(HolderSet* holders);

  SeededHash hash_;
  SlabArena& arena_;
  EpochDomain& epochs_;
  const PlaceTable& places_;
  LocatorTable table_;
  std::atomic<Directory*> directory_{nullptr};
  size_t segments_ = 0;
  size_t directory_size_ = 0;
  uint32_t runs_ = 1;  // numbers given out; 0 is nowhere
  std::vector<uint32_t> free_runs_;
  std::vector<Dirty> dirty_;
  std::vector<uint32_t> lost_;  // runs that keys were removed from since Tidy
  uint32_t sweep_next_ = 1;
  // Copies beyond the first. Rare, so that they need not lie in the runs.
  absl::flat_hash_map<std::pair<PlaceId, Key>, uint32_t, PlaceKeyHash> extra_copies_;
  std::vector<uint32_t> extras_of_place_;  // entries of extra_copies_
};

// Bits [offset, offset + length) of a word.
inline uint64_t BitRange(uint32_t offset, uint32_t length) {
  return (length == 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1) << offset;
}

template <typename Key>
template <typename Visit>
void RunStore<Key>::ForEach(Visit&& visit) const {
  for (uint32_t number = 1; number < runs_; ++number) {
    const Run& run = At(number);
    if (run.live.load(std::memory_order_relaxed) == 0) continue;
    const HolderSet& holders = *run.holders.load(std::memory_order_relaxed);
    const Key* const keys = run.keys.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < holders.size(); ++i) {
      for (uint64_t bits = holders.bits(i); bits != 0; bits &= bits - 1) {
        const Key& key = keys[std::countr_zero(bits)];
        uint32_t copies = 1;
        if (!extra_copies_.empty()) {
          const auto extra = extra_copies_.find({holders.place(i), key});
          if (extra != extra_copies_.end()) copies += extra->second;
        }
        visit(holders.place(i), key, copies);
      }
    }
  }
}

template <typename Key>
template <typename Visit>
void RunStore<Key>::Walk(std::span<const BlockHash> chain, size_t begin, bool until_gap,
                         Visit&& visit) const {
  constexpr size_t kAhead = 12;  // table lines under way while keys are not there
  size_t fetched = begin;
  bool missed = false;
  Spot near;  // where the next key lies if it lies behind the last one
  for (size_t position = begin; position < chain.size();) {
    const Key& first = KeyForm<Key>::Of(chain[position]);
    Spot spot = near;
    if (near.run == 0 || !IsAt(At(near.run), near.offset, first)) {
      if (missed) {
        const size_t until = std::min(chain.size(), position + kAhead);
        for (fetched = std::max(fetched, position + 1); fetched < until; ++fetched) {
          Prefetch(KeyForm<Key>::Of(chain[fetched]));
        }
      }
      spot = Find(first);
      missed = spot.run == 0;
      if (missed) {
        if (until_gap) return;
        near = {};
        ++position;
        continue;
      }
    }
    const Run& run = At(spot.run);
    const uint64_t live = run.live.load(std::memory_order_acquire) >> spot.offset;
    const Key* const keys = run.keys.load(std::memory_order_acquire) + spot.offset;
    const uint32_t next = run.next.load(std::memory_order_acquire);
    const HolderSet* const holders = run.holders.load(std::memory_order_acquire);
    __builtin_prefetch(holders);
    if (next != 0) __builtin_prefetch(&At(next));
    const size_t most =
        std::min<size_t>(chain.size() - position, static_cast<size_t>(std::countr_one(live)));
    // The first was found; it may have been given up since, by a writer whom the caller notices.
    size_t length = 1;
    while (length < most && keys[length] == KeyForm<Key>::Of(chain[position + length])) ++length;
    if (next != 0) {
      __builtin_prefetch(At(next).keys.load(std::memory_order_relaxed));
      __builtin_prefetch(At(next).holders.load(std::memory_order_relaxed));
    }
    visit(*holders, spot.offset, position, static_cast<uint32_t>(length));
    position += length;
    near = {spot.run, static_cast<uint32_t>(spot.offset + length)};
    if (near.offset == kRunKeys) near = {next, 0};
  }
}

extern template class RunStore<uint64_t>;
extern template class RunStore<BlockHash>;

}  // namespace kvcast::router
