// RunStore: block hashes of one form, the content they name, and the places that hold them, in
// runs.
//
// Blocks of a prompt are stored, asked for and removed next to each other. So blocks that were
// stored one after the other lie side by side, up to 64 in a run; a run has one bitmap for each
// place that holds any of them.
//
// A slot of a run is a pair of a hash and a content key. Sources that say the same of a hash share
// its slot; a source that says something else of it has a slot of its own, so that no source's word
// changes what another one holds. Hashes whose content is not known lie in runs of their own, where
// neighbourhood is a place to look first and nothing more.
//
// A run of named blocks is a piece of one content chain: the block at offset i + 1 ends `stride`
// tokens behind the block at offset i. A prompt that contains a later block therefore contains the
// first one too, and one table entry a run, for the content of its first slot, finds them all. A
// table of all hashes finds a block by its hash.
//
// A batch is prepared where readers do not look: keys without holders, and bits that are next. Then
// Publish lets them see it, a word at a time and no more work than that, and Tidy gives back what
// no place holds any more.
//
// A slot belongs to its block for as long as the run lives, and its bit in `live` says whether any
// place holds it. A run that has lost most of its blocks is replaced by smaller ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/block_hash_value.h"
#include "kvcast/content_key.h"
#include "router/holder_set.h"
#include "router/locator_table.h"
#include "router/place_table.h"
#include "router/seeded_hash.h"
#include "src/base/epoch.h"

namespace kvcast::router {

enum class Removal : uint8_t { kNotHeld, kCopiesLeft, kLastCopy };

// The name that a hash stands for. Two words, so that it is passed in registers.
class BlockName {
 public:
  constexpr BlockName() = default;
  constexpr BlockName(ContentKey content, uint32_t stride, uint32_t end = 0)
      : content_(content), sizes_(uint64_t{end} << 32 | stride) {}

  ContentKey content() const { return content_; }  // of the prefix that the block ends
  // Tokens of the block; 0: unnamed.
  uint32_t stride() const { return static_cast<uint32_t>(sizes_); }
  // Tokens of the prefix; 0: not known.
  uint32_t end() const { return static_cast<uint32_t>(sizes_ >> 32); }
  bool named() const { return stride() != 0; }

 private:
  ContentKey content_ = kUnnamed;
  uint64_t sizes_ = 0;
};

enum class Addition : uint8_t {
  kFirst,      // the place did not hold the hash
  kCopy,       // it did
  kOtherName,  // nothing was added: the source holds the hash under another name
  kOtherHash,  // nothing was added: the source holds another hash of this content
};

// The open places of one source.
using SourcePlaces = std::span<const PlaceId>;

// The place that a block is added to, as one of its source.
struct Holding {
  SourcePlaces own;
  PlaceId place = kNoPlace;
  uint32_t source = 0;  // a number that no other source has, or had
  uint32_t copies = 1;
  bool repeats_count = true;  // copies that come to others are counted
};

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
        heads_(arena, epochs, LocatorTable::Filter::kKept),
        extra_copies_(0, PlaceKeyHash{{seed}}) {}
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  // Until Publish, readers do not see what Add and Remove change; the writer's other calls do.
  // `more` blocks will follow this one. `follows`: the block continues the content of the block
  // that the cursor is on.
  Addition Add(const Key& key, BlockName name, const Holding& holding, size_t more, bool follows,
               Cursor& cursor);
  // `name`, if given, becomes what the hash named there. Unchanged if it was not held.
  Removal Remove(const Key& key, PlaceId place, Cursor& cursor, BlockName* name = nullptr);
  // Takes away all copies of the place, and gives back how many they were.
  uint32_t TakeCopies(const Key& key, PlaceId place);
  void Publish();
  // REQUIRES: all is published.
  void Tidy();
  // The name under which one of the places holds the key, with the cursor on it; nullopt: none
  // does.
  std::optional<BlockName> NameOf(const Key& key, SourcePlaces own, Cursor& cursor) const;
  // Puts the cursor on the slot of that key and content if any place holds it, else nowhere.
  void Seek(const Key& key, ContentKey content, Cursor& cursor) const;
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
  // Keys that no place holds are passed over, or with `until_gap` end the walk. `unnamed_only`:
  // only blocks whose content is not known.
  template <typename Visit>
  void WalkHashes(std::span<const BlockHash> chain, size_t begin, bool until_gap, bool unnamed_only,
                  Visit&& visit) const;
  // The runs that begin with this content: `visit(RunView)`. A prompt of that content may go
  // on otherwise.
  struct RunView {
    const ContentKey* contents;
    uint32_t slots;   // of them, as far as any place holds one
    uint32_t stride;  // tokens
    const HolderSet* holders;
  };
  template <typename Visit>
  void VisitRunsFrom(ContentKey content, Visit&& visit) const;
  // Starts to load what VisitRunsFrom looks at first. False: no run begins with this content.
  bool PrefetchRunsFrom(ContentKey content) const {
    const uint64_t hash = hash_(content);
    if (!heads_.MayHave(hash)) return false;
    heads_.Prefetch(hash);
    return true;
  }
  bool any_named() const { return named_runs_.load(std::memory_order_acquire) != 0; }

  uint64_t size() const { return table_.size(); }  // writer: slots that are held

 private:
  static constexpr uint32_t kNoHolder = ~uint32_t{0};
  static constexpr uint32_t kRunBits = 6;
  static constexpr size_t kSegmentRuns = 1024;

  // 56 bytes. Readers look at `live` first: a bit that they see there is of a slot that they see,
  // and so are the slots below it.
  struct Run {
    std::atomic<uint64_t> live{0};
    std::atomic<Key*> keys{nullptr};
    std::atomic<ContentKey*> contents{nullptr};  // nullptr: the run's blocks are unnamed
    std::atomic<HolderSet*> holders{nullptr};
    std::atomic<uint32_t> next{0};    // the run that was begun behind this one, if it is there yet
    std::atomic<uint32_t> stride{0};  // tokens of each block; 0: unnamed
    uint8_t used = 0;                 // writer
    uint8_t capacity = 0;             // writer; of slots
    bool has_twins = false;           // writer; twin_slots_ has an entry of it
    uint32_t owner = 0;               // writer; Holding::source that began the run
    uint32_t end = 0;                 // writer; BlockName::end of the first slot
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
  bool IsNamed(const Run& run, uint32_t offset, BlockName name) const {
    return run.stride.load(std::memory_order_relaxed) == 0
               ? !name.named()
               : run.contents.load(std::memory_order_relaxed)[offset] == name.content();
  }
  bool StepTo(const Key& key, bool backwards, Cursor& cursor) const;
  // The first slot of the key for which `is_it(spot)` holds.
  template <typename IsIt>
  Spot FindWhere(const Key& key, IsIt&& is_it, LocatorTable::Room* room = nullptr) const {
    return SpotOf(table_.Find(
        hash_(key),
        [&](Locator locator) {
          const Spot spot = SpotOf(locator);
          return At(spot.run).keys.load(std::memory_order_acquire)[spot.offset] == key &&
                 is_it(spot);
        },
        room));
  }
  Spot FindHeld(const Key& key, PlaceId place) const {
    return FindWhere(key, [&](Spot spot) {
      const ContentKey* const contents = At(spot.run).contents.load(std::memory_order_relaxed);
      if (contents != nullptr) __builtin_prefetch(contents + spot.offset);
      return IsHeld(spot, place);
    });
  }
  bool HasTwins() const { return twins_.load(std::memory_order_acquire) != 0; }
  // False: no other slot has the key of this one. Writer.
  bool MayHaveTwin(uint32_t number, const Run& run, uint32_t offset) const {
    return run.has_twins && (twin_slots_.at(number) >> offset & 1) != 0;
  }
  void MarkTwin(Spot spot);
  bool IsHeld(Spot spot, PlaceId place) const {
    const HolderSet& holders = *At(spot.run).holders.load(std::memory_order_relaxed);
    const uint32_t holder = holders.Find(place);
    return holder < holders.size() && (holders.next(holder) >> spot.offset & 1) != 0;
  }
  bool IsHeldByAny(Spot spot, SourcePlaces own) const {
    return std::any_of(own.begin(), own.end(), [&](PlaceId place) { return IsHeld(spot, place); });
  }
  static bool HoldsAny(const Run& run, SourcePlaces own);
  // Whether the source holds something in a run of its own that begins with this content under
  // another hash. A source has one such run for a content, so that a walk over a prompt meets no
  // more of them than there are sources. Runs of others do not count, whatever it holds there.
  bool OwnsRival(const Key& key, BlockName name, const Holding& holding) const;
  bool HoldsNextOtherwise(const Key& key, BlockName name, SourcePlaces own,
                          const Cursor& cursor) const;
  Spot SpotBehind(const Key& key, BlockName name, size_t more, const Cursor& cursor);
  Spot DeadHead(const Key& key, BlockName name) const;
  Spot NewHead(const Key& key, BlockName name, size_t more, const Cursor& cursor);
  void Enliven(Spot spot);
  static BlockName NameAt(const Run& run, uint32_t offset);
  void InsertHead(uint32_t run);
  uint32_t NewRun(uint32_t capacity, uint32_t stride);
  void GrowKeys(Run& run, uint32_t capacity);
  void AddSegment();
  uint32_t HolderOf(uint32_t run, PlaceId place);
  HolderSet& GrowHolders(uint32_t run);
  void Enter(Spot spot, PlaceId place, Cursor& cursor);
  void AddExtra(const Key& key, PlaceId place, uint32_t copies);
  bool RemoveExtra(const Key& key, PlaceId place);
  void KillMany(uint32_t run, uint64_t dead);
  void Settle(uint32_t run);
  void FreeRun(uint32_t run);
  bool DropClosed(uint32_t run);
  Key* NewKeys(uint32_t capacity);
  static void FreeKeys(void* arena, uintptr_t keys);
  static void FreeInArena(void* arena, uintptr_t object);
  ContentKey* NewContents(uint32_t capacity);
  void RetireKeys(Key* keys);
  void RetireContents(ContentKey* contents);
  void CopySlots(uint32_t number, uint64_t slots);
  void RetireHolders(HolderSet* holders);

  SeededHash hash_;
  SlabArena& arena_;
  EpochDomain& epochs_;
  const PlaceTable& places_;
  LocatorTable table_;  // every slot that is held, by its hash
  LocatorTable heads_;  // every run of named blocks, by the content of its first slot
  // Slots that share their hash with another one, but for one of each hash.
  std::atomic<uint64_t> twins_{0};
  // Writer, by run: slots that share their hash with another one, or did.
  absl::flat_hash_map<uint32_t, uint64_t> twin_slots_;
  std::vector<Spot> same_hash_;  // writer, of Add: slots of the hash with other names
  std::atomic<uint64_t> named_runs_{0};
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
void RunStore<Key>::VisitRunsFrom(ContentKey content, Visit&& visit) const {
  heads_.Find(hash_(content), [&](Locator locator) {
    const Run& run = At(SpotOf(locator).run);
    const uint64_t live = run.live.load(std::memory_order_acquire);
    const uint32_t stride = run.stride.load(std::memory_order_acquire);
    if (live == 0 || stride == 0) return false;
    const ContentKey* const contents = run.contents.load(std::memory_order_acquire);
    if (contents[0] == content) {
      visit(RunView{contents, static_cast<uint32_t>(std::bit_width(live)), stride,
                    run.holders.load(std::memory_order_acquire)});
    }
    return false;
  });
}

template <typename Key>
template <typename Visit>
void RunStore<Key>::WalkHashes(std::span<const BlockHash> chain, size_t begin, bool until_gap,
                               bool unnamed_only, Visit&& visit) const {
  constexpr size_t kAhead = 12;  // table lines under way while keys are not there
  size_t fetched = begin;
  bool missed = false;
  Spot near;  // where the next key lies if it lies behind the last one
  const auto wanted = [&](Spot spot) {
    return !unnamed_only || At(spot.run).stride.load(std::memory_order_acquire) == 0;
  };
  // A hash may have several slots, each with holders of its own.
  const bool twins = !unnamed_only && HasTwins();
  std::vector<Spot> seen;  // with twins: slots of this position that were part of a stretch
  struct Stretch {
    uint32_t run;
    uint32_t offset;
    size_t begin;
    size_t end;
  };
  std::vector<Stretch> stretches;
  // The slots from `spot` on that hold the chain from `position` on.
  const auto visit_from = [&](Spot spot, size_t position) {
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
    near = {spot.run, static_cast<uint32_t>(spot.offset + length)};
    if (near.offset == kRunKeys) near = {next, 0};
    return length;
  };
  for (size_t position = begin; position < chain.size();) {
    const Key& first = KeyForm<Key>::Of(chain[position]);
    if (twins) {
      seen.clear();
      FindWhere(first, [&](Spot spot) {
        seen.push_back(spot);
        return false;
      });
      if (seen.empty() && until_gap) return;
      std::erase_if(stretches, [&](const Stretch& s) { return s.end <= position; });
      for (const Spot spot : seen) {
        const bool covered = std::any_of(stretches.begin(), stretches.end(), [&](const Stretch& s) {
          return s.run == spot.run && s.offset + (position - s.begin) == spot.offset;
        });
        if (covered) continue;
        const size_t length = visit_from(spot, position);
        stretches.push_back({spot.run, spot.offset, position, position + length});
      }
      ++position;
      continue;
    }
    Spot spot = near;
    if (near.run == 0 || !IsAt(At(near.run), near.offset, first) || !wanted(near)) {
      if (missed) {
        const size_t until = std::min(chain.size(), position + kAhead);
        for (fetched = std::max(fetched, position + 1); fetched < until; ++fetched) {
          Prefetch(KeyForm<Key>::Of(chain[fetched]));
        }
      }
      spot = FindWhere(first, wanted);
      missed = spot.run == 0;
      if (missed) {
        if (until_gap) return;
        near = {};
        ++position;
        continue;
      }
    }
    position += visit_from(spot, position);
  }
}

extern template class RunStore<uint64_t>;
extern template class RunStore<BlockHash>;

}  // namespace kvcast::router
