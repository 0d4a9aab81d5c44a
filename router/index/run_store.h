// RunStore: block hashes of one form, the content that each hash names, and the holders of each
// block. Blocks are stored in runs. Two slots with the same hash are twins.
//
// The blocks of a prompt are stored, queried and removed next to each other. Blocks that were
// stored one after the other are therefore in neighbouring slots, up to 64 in a run. A run has one
// bitmap for each holder of any of its blocks.
//
// A slot of a run is a pair of a block hash and a content key. A source is a worker, or a hidden
// generation of a worker. Sources that give a hash the same content share one slot. A source that
// gives the hash another content has a slot of its own, so one source cannot change the blocks of
// another source. Hashes with unknown content are in separate runs. In these runs, the next slot is
// only a hint for the position of the next block.
//
// A run of named blocks is a piece of one content chain: the block at offset i + 1 ends `stride`
// tokens after the block at offset i. A prompt that contains a later block of the run therefore
// contains the first block too. One table entry per run, for the content of its first slot, finds
// all its blocks. Another table finds each block by its hash. The writer itself must have computed
// the content at offset i + 1 from the content at offset i, and these contents must be proven (see
// StoreContent::proven). Otherwise a source could hide the blocks of another source, which share
// the slots of the run. A block whose content is not proven is therefore alone in its run.
//
// Add and Remove prepare a batch with changes that show no block to readers: slots without
// published bits, and `next` bits, which readers do not load. Publish then shows the batch to
// readers, with one atomic write for each changed pair of a run and a holder. Tidy frees the slots
// that no holder has.
//
// A slot belongs to one block as long as the run exists. Its bit in `live` is set while a holder
// has the block. A run that has lost most of its blocks is replaced by smaller runs.
//
// Numbers such as I3 in comments are the invariants of README.md in this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/core/block_hash_value.h"
#include "kvcast/router/content_key.h"
#include "router/index/copy_counts.h"
#include "router/index/holder_set.h"
#include "router/index/holder_table.h"
#include "router/index/locator_table.h"
#include "router/index/run_pool.h"
#include "src/base/reclaim_domain.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

enum class Removal : uint8_t { kNotHeld, kCopiesLeft, kLastCopy };

// The name that a block hash stands for. The class has two words, so that compilers pass it in
// registers.
class BlockName {
 public:
  // The result of end_or_unproven() if the content is not proven (see StoreContent::proven).
  static constexpr uint32_t kUnproven = ~uint32_t{0};

  constexpr BlockName() = default;
  constexpr BlockName(ContentKey content, uint32_t stride, uint32_t end = 0)
      : content_(content), sizes_(uint64_t{end} << 32 | stride) {}

  ContentKey content() const { return content_; }  // key of the prefix that ends with the block
  // Tokens of the block; 0: the block is unnamed.
  uint32_t stride() const { return static_cast<uint32_t>(sizes_); }
  // Tokens of the prefix; 0: unknown.
  uint32_t end() const { return proven() ? end_or_unproven() : 0; }
  // As end(), or kUnproven.
  uint32_t end_or_unproven() const { return static_cast<uint32_t>(sizes_ >> 32); }
  bool proven() const { return end_or_unproven() != kUnproven; }
  bool named() const { return stride() != 0; }

 private:
  ContentKey content_ = kUnnamed;
  uint64_t sizes_ = 0;
};

enum class Addition : uint8_t {
  kFirst,      // the holder did not have the block
  kCopy,       // the holder had the block before
  kOtherName,  // nothing was added: the source holds the hash under another name
  kOtherHash,  // nothing was added: the source holds another hash of this content
};

// The open holders of one source.
using SourceHolders = std::span<const HolderId>;

// The holder that a block is added to, and the source of that holder.
struct Holding {
  SourceHolders own;
  HolderId holder = kNoHolderId;
  uint32_t source = 0;  // unique among all current and past sources
  uint32_t copies = 1;
  bool repeats_count = true;  // true: Add counts a copy of a block that the holder already has
  // Tokens per content in the queries of this source. The source can use the slots of a run only if
  // this number divides the stride of the run. 0: unknown, so only an equal stride is certain.
  uint32_t unit = 0;
};

// Key: uint64_t for the hash forms that are integers, BlockHash for byte strings. KeyForm converts
// a hash to the stored key.
template <typename Key>
struct KeyForm;
template <>
struct KeyForm<uint64_t> {
  static uint64_t Of(const BlockHash& hash) { return hash.integer(); }
  static uint64_t Of(uint64_t hash) { return hash; }
};
template <>
struct KeyForm<BlockHash> {
  static const BlockHash& Of(const BlockHash& hash) { return hash; }
};

// Threads: WalkHashes, VisitRunsFrom, PrefetchRunsFrom, Prefetch and any_named may be called by any
// thread that holds a Pin of `reclaim`, while the writer works. All other methods need the writer's
// lock (I0).
template <typename Key>
class RunStore {
  using Run = router::Run<Key>;

 public:
  // The last position of a writer. The next call looks for its key beside this position. A cursor
  // stays valid while only removals, and calls with this cursor, change the store.
  struct Cursor {
    uint32_t run = 0;  // 0: no position
    uint32_t offset = 0;
    Run* at = nullptr;              // the run with number `run`
    uint64_t* next_bits = nullptr;  // next bits of the holder, in the run's holder set
  };

  RunStore(uint64_t seed, SlabArena& arena, ReclaimDomain& reclaim, HolderTable& holder_table)
      : hash_{seed},
        arena_(arena),
        holder_table_(holder_table),
        table_(arena, reclaim),
        heads_(arena, reclaim, LocatorTable::Filter::kKept),
        pool_(arena, reclaim),
        copies_(seed) {}
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;
  // REQUIRES: there are no readers, and all changes are published.
  ~RunStore();

  // Readers do not see the effect of Add and Remove before Publish. The other writer methods see it
  // immediately. `more`: number of blocks that follow this block in the store. `follows`: the block
  // continues the content of the block at the cursor.
  Addition Add(const Key& key, BlockName name, const Holding& holding, size_t more, bool follows,
               Cursor& cursor);
  // The blocks of a new run, at most kRunKeys. The name of block i is contents[i], and its prefix
  // has end + i * stride tokens.
  struct NewBlocks {
    std::span<const Key> keys;
    std::span<const ContentKey> contents;  // empty: the blocks are unnamed
    uint32_t stride = 0;
    uint32_t end = 0;  // 0: unknown; BlockName::kUnproven: there is only one block
  };
  // Does the same as Add for each block in order, and is faster. Makes a run of its own for the
  // blocks. Stops at the first block whose hash the store has, or whose content is kUnnamed. Adds
  // no block if the content of the first block is not new. Returns the number of added blocks. If
  // this number is not 0, the cursor is on the last added block.
  // REQUIRES: holding.copies is 1, and the cursor has no position.
  size_t AddNew(const NewBlocks& blocks, const Holding& holding, Cursor& cursor);
  // Makes room for this number of blocks, and of runs of named blocks.
  void Reserve(uint64_t blocks, uint64_t named_runs) {
    table_.Reserve(blocks);
    heads_.Reserve(named_runs);
  }
  // Sets `*name`, if given, to the name of the hash. Leaves `*name` unchanged if the holder did not
  // have the hash.
  Removal Remove(const Key& key, HolderId holder, Cursor& cursor, BlockName* name = nullptr);
  // Removes all copies that the holder has. Returns their number.
  uint32_t TakeCopies(const Key& key, HolderId holder);
  void Publish();
  struct Dirty {  // a holder whose next bits are not published
    uint32_t run;
    uint32_t position;  // in the holder set that the run had when the change was made
    HolderId holder;
  };
  using Unpublished = std::vector<Dirty>;
  // Exchanges the list of the changes that Publish shows. A list may be kept while other changes
  // are made and published, but not beyond Tidy, Sweep or the closing of a holder.
  void SwapUnpublished(Unpublished& other) { dirty_.swap(other); }
  // REQUIRES: all changes are published.
  void Tidy();
  // Returns the name under which one of the holders `own` has the key, and puts the cursor on the
  // slot of the key. nullopt: none of these holders has the key.
  std::optional<BlockName> NameOf(const Key& key, SourceHolders own, Cursor& cursor) const;
  // Puts the cursor on the slot of this key and content if any holder has it. Otherwise, the cursor
  // has no position.
  void Seek(const Key& key, ContentKey content, Cursor& cursor) const;
  bool Holds(const Key& key, HolderId holder) const;
  void PrefetchPath(const Key& key) const { table_.PrefetchPath(hash_(key)); }
  void Prefetch(const Key& key) const { table_.Prefetch(hash_(key)); }

  // Removes the blocks of closed holders. Each visited run and each freed slot takes 1 from `work`,
  // and the sweep stops when `work` is 0. The last run may cost more than the rest of `work`.
  // False: all runs were visited since BeginSweep. REQUIRES: all changes are published.
  void BeginSweep() { sweep_next_ = 1; }
  bool Sweep(size_t& work);
  void EndSweep();
  // See LocatorTable::Trim.
  static constexpr size_t kShards = LocatorTable::kShards;
  bool Trim(size_t shard) {
    const bool again = table_.Trim(shard);
    return heads_.Trim(shard) || again;
  }

  // Writer. A pass in steps over the blocks of some holders. A step calls `visit(holder, key,
  // copies)` for the blocks of the holders for which `wants(holder)` is true, including the blocks
  // of closed holders. It visits whole runs, and stops when `work` is 0. False: the pass has ended.
  // Between two steps, the writer may change the store. EndPass must be called for each BeginPass.
  void BeginPass(RunPass& pass) const { passes_.push_back(&pass); }
  void EndPass(RunPass& pass) const { std::erase(passes_, &pass); }
  template <typename Wants, typename Visit>
  bool Step(RunPass& pass, size_t& work, Wants&& wants, Visit&& visit) const;

  // Writer. Calls `visit(RunPart)` for every run with live slots. Allocates no memory.
  struct RunPart {
    uint32_t slots;              // slots up to the last live slot
    uint32_t stride;             // tokens of each block; 0: unnamed
    uint32_t end;                // BlockName::end_or_unproven of the first slot
    const Key* keys;             // by slot
    const ContentKey* contents;  // by slot; nullptr: unnamed
    const HolderSet& holders;
  };
  template <typename Visit>
  void ForEachRun(Visit&& visit) const;
  // Writer. The number of copies that the holder has. REQUIRES: the holder has the block.
  uint32_t CopiesOf(const Key& key, HolderId holder) const { return 1 + copies_.Of(key, holder); }
  bool HasCopies(HolderId holder) const { return copies_.HasAny(holder); }

  // Readers. Calls `visit(set, offset, position, length)` for every stretch of `chain`, from
  // position `begin` on, whose keys are in neighbouring slots. Bit offset + i of a holder belongs
  // to chain[position + i]. The walk skips a key without a slot. With `until_gap`, the walk ends at
  // this key. If no hash had two slots before the walk, and a hash gets a second slot during the
  // walk, the walk visits the chain twice. `unnamed_only`: visits only blocks whose content is
  // unknown. Hash: BlockHash, or uint64_t for the hashes of this form. Defined in hash_walk.h.
  template <typename Hash, typename Visit>
  void WalkHashes(std::span<const Hash> chain, size_t begin, bool until_gap, bool unnamed_only,
                  Visit&& visit) const;
  // Readers. Calls `visit(RunView)` for every run that begins with this content. A prompt with this
  // content may differ from the later blocks of the run.
  struct RunView {
    const ContentKey* contents;
    uint32_t slots;   // slots up to the last live slot
    uint32_t stride;  // tokens per block
    const HolderSet* holders;
  };
  template <typename Visit>
  void VisitRunsFrom(ContentKey content, Visit&& visit) const;
  // Starts to load the memory that VisitRunsFrom reads first. False: no run begins with this
  // content.
  bool PrefetchRunsFrom(ContentKey content) const {
    const uint64_t hash = hash_(content);
    if (!heads_.MayHave(hash)) return false;
    heads_.Prefetch(hash);
    return true;
  }
  bool any_named() const { return named_runs_.load(std::memory_order_acquire) != 0; }  // I9

  uint64_t size() const { return table_.size(); }  // writer; number of live slots
  // True: a hash may have two slots.
  bool has_twins() const { return HasTwins(twins_.load(std::memory_order_acquire)); }  // I9

 private:
  // If a source has more holders than this number, HoldsAny visits the holders of the run instead
  // of the holders of the source.
  static constexpr size_t kFewHolders = 4;
  static constexpr uint32_t kRunBits = 6;
  static constexpr int kTwinBits = 40;  // enough for all slots
  static constexpr uint64_t kAddTwin = (uint64_t{1} << kTwinBits) + 1;

  struct Spot {
    uint32_t run = 0;
    uint32_t offset = 0;
  };
  struct Block {  // the arguments of Add
    const Key& key;
    BlockName name;
    const Holding& holding;
    size_t more;
    bool follows;
  };
  struct Known {                  // the slots of a block's hash in the table
    Spot spot;                    // the slot of the block; run 0: none
    bool held_otherwise = false;  // the source holds the hash under another name
    LocatorTable::Room room = nullptr;
  };
  template <typename Hash, typename Visit>
  struct HashWalk;

  static Locator LocatorOf(Spot spot) { return Locator{spot.run} << kRunBits | spot.offset; }
  static Spot SpotOf(Locator locator) {
    return {static_cast<uint32_t>(locator >> kRunBits),
            static_cast<uint32_t>(locator & (kRunKeys - 1))};
  }
  Run& At(uint32_t run) const { return pool_.At(run); }
  // True if this slot has the key and is live. I3: `live` is loaded before the array.
  bool IsAt(const Run& run, uint32_t offset, const Key& key) const {
    return (run.live.load(std::memory_order_acquire) >> offset & 1) != 0 &&
           run.keys.load(std::memory_order_acquire)[offset] == key;
  }
  // Writer.
  bool IsNamed(const Run& run, uint32_t offset, BlockName name) const {
    return run.stride.load(std::memory_order_relaxed) == 0
               ? !name.named()
               : run.contents.load(std::memory_order_relaxed)[offset] == name.content();
  }
  // Writer. True if a query of the source finds this name in a slot of the run.
  static bool Serves(const Run& run, BlockName name, const Holding& holding) {
    const uint32_t stride = run.stride.load(std::memory_order_relaxed);
    return stride == name.stride() || (holding.unit != 0 && stride % holding.unit == 0);
  }
  bool StepTo(const Key& key, bool backwards, Cursor& cursor) const;
  // Returns the first slot of the key for which `is_it(spot)` is true.
  template <typename IsIt>
  Spot FindWhere(const Key& key, IsIt&& is_it, LocatorTable::Room* room = nullptr) const {
    return SpotOf(table_.Find(
        hash_(key),
        [&](Locator locator) {
          const Spot spot = SpotOf(locator);
          return At(spot.run).keys.load(std::memory_order_acquire)[spot.offset] == key &&  // I5
                 is_it(spot);
        },
        room));
  }
  // Writer.
  Spot FindHeld(const Key& key, HolderId holder) const {
    return FindWhere(key, [&](Spot spot) {
      const ContentKey* const contents = At(spot.run).contents.load(std::memory_order_relaxed);
      if (contents != nullptr) __builtin_prefetch(contents + spot.offset);
      return IsHeld(spot, holder);
    });
  }
  static bool HasTwins(uint64_t twins) { return twins << (64 - kTwinBits) != 0; }
  // Writer. False: no other slot has the key of this slot.
  bool MayHaveTwin(uint32_t number, const Run& run, uint32_t offset) const {
    return run.has_twins && (twin_slots_.at(number) >> offset & 1) != 0;
  }
  void MarkTwin(Spot spot);
  // Writer.
  bool IsHeld(Spot spot, HolderId holder) const {
    const HolderSet& set = *At(spot.run).holders.load(std::memory_order_relaxed);
    const uint32_t position = set.Find(holder);
    return position < set.size() && (set.next(position) >> spot.offset & 1) != 0;
  }
  bool IsHeldByAny(Spot spot, SourceHolders own) const {
    return HoldsAny(At(spot.run), uint64_t{1} << spot.offset, own);
  }
  // Writer. True if the source holds any of these slots.
  bool HoldsAny(const Run& run, uint64_t slots, SourceHolders own) const;
  // True if the source has begun a run whose first block has this content under another hash, and
  // the source holds any block of that run. Runs that another source has begun do not count, even
  // if this source holds blocks of these runs. If the result is true, Add begins no run. A walk
  // therefore meets at most one run per source for one content. Also retires each run that the
  // function finds and whose holders are all void (see IsVoid).
  bool OwnsRival(const Block& block);
  bool HoldsNextOtherwise(const Block& block, const Cursor& cursor) const;
  Known FindKnown(const Block& block);
  Spot TakeSlot(const Block& block, LocatorTable::Room room, const Cursor& cursor);
  void Prove(Spot spot, BlockName name);
  Spot SpotBehind(const Block& block, const Cursor& cursor);
  Spot DeadHead(const Block& block) const;
  Spot NewHead(const Block& block);
  Spot NewHeadFor(const NewBlocks& blocks, const Holding& holding);
  // Writes only a change, because queries read the same cache line.
  static void SetNext(Run& run, uint32_t next) {
    if (run.next.load(std::memory_order_relaxed) == next) return;
    run.next.store(next, std::memory_order_release);  // I6
  }
  void SetLive(Spot spot);
  static BlockName NameAt(const Run& run, uint32_t offset);
  void InsertHead(uint32_t run);
  void EraseHead(uint32_t run);
  uint32_t PositionOf(uint32_t run, HolderId holder);
  HolderSet& GrowHolders(uint32_t run);
  void Enter(Spot spot, HolderId holder, Cursor& cursor);
  // run_tidying.h
  bool IsVoid(const HolderSet& set, uint32_t i) const;
  void RemoveVoid(uint32_t run, uint64_t slots);
  bool RemoveIfVoid(Spot spot);
  void RetireIfVoid(uint32_t run);
  void Retire(uint32_t run);
  void KillMany(uint32_t run, uint64_t dead);
  void Settle(uint32_t run);
  void FreeRun(uint32_t run);
  bool DropClosed(uint32_t run);
  bool MoveNamed(uint32_t number, uint64_t live);
  uint32_t CopySlots(uint32_t number, uint64_t slots);

  SeededHash hash_;
  SlabArena& arena_;
  HolderTable& holder_table_;
  LocatorTable table_;  // every live slot, by its hash
  LocatorTable heads_;  // every run of named blocks, by its first content
  RunPool<Key> pool_;
  // I9. The low kTwinBits: the number of slots beyond the first slot of their hash. The higher
  // bits: the number of increments of the low bits, modulo 2^24.
  std::atomic<uint64_t> twins_{0};
  // Writer. By run: the slots that share their hash with another slot, or have shared it before.
  absl::flat_hash_map<uint32_t, uint64_t> twin_slots_;
  std::vector<Spot> same_hash_;          // writer, in Add: slots of the hash with other names
  std::atomic<uint64_t> named_runs_{0};  // I9
  Unpublished dirty_;
  std::vector<uint32_t> heads_met_;  // writer, in OwnsRival
  std::vector<uint32_t> lost_;       // runs with a removed block since the last Tidy
  std::vector<uint32_t>
      runs_to_tidy_;               // runs in which RemoveVoid removed a slot since the last Tidy
  std::vector<uint32_t> retired_;  // empty runs that Tidy must free
  uint32_t sweep_next_ = 1;
  CopyCounts<Key> copies_;
  mutable std::vector<RunPass*> passes_;  // passes that have not ended
};

// Bits [offset, offset + length) of a word.
inline uint64_t BitRange(uint32_t offset, uint32_t length) {
  return (length == 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1) << offset;
}

template <typename Key>
template <typename Wants, typename Visit>
bool RunStore<Key>::Step(RunPass& pass, size_t& work, Wants&& wants, Visit&& visit) const {
  while (work > 0) {
    const uint32_t number = pass.Next(pool_.end());
    if (number == 0) return false;
    size_t done = 1;
    const Run& run = At(number);
    if (run.live.load(std::memory_order_relaxed) != 0) {
      const HolderSet& set = *run.holders.load(std::memory_order_relaxed);
      const Key* const keys = run.keys.load(std::memory_order_relaxed);
      done += set.size();
      for (uint32_t i = 0; i < set.size(); ++i) {
        if (!wants(set.id(i))) continue;
        for (uint64_t bits = set.bits(i); bits != 0; bits &= bits - 1, ++done) {
          const Key& key = keys[std::countr_zero(bits)];
          visit(set.id(i), key, 1 + copies_.Of(key, set.id(i)));
        }
      }
    }
    work -= std::min(work, done);
  }
  return true;
}

template <typename Key>
template <typename Visit>
void RunStore<Key>::ForEachRun(Visit&& visit) const {
  for (uint32_t number = 1; number < pool_.end(); ++number) {
    const Run& run = At(number);
    const uint64_t live = run.live.load(std::memory_order_relaxed);
    if (live == 0) continue;
    visit(RunPart{.slots = static_cast<uint32_t>(std::bit_width(live)),
                  .stride = run.stride.load(std::memory_order_relaxed),
                  .end = run.end,
                  .keys = run.keys.load(std::memory_order_relaxed),
                  .contents = run.contents.load(std::memory_order_relaxed),
                  .holders = *run.holders.load(std::memory_order_relaxed)});
  }
}

template <typename Key>
template <typename Visit>
void RunStore<Key>::VisitRunsFrom(ContentKey content, Visit&& visit) const {
  heads_.Find(hash_(content), [&](Locator locator) {
    const Run& run = At(SpotOf(locator).run);
    const uint64_t live = run.live.load(std::memory_order_acquire);      // I3
    const uint32_t stride = run.stride.load(std::memory_order_acquire);  // I3
    if (live == 0 || stride == 0) return false;
    const ContentKey* const contents = run.contents.load(std::memory_order_acquire);  // I3
    if (contents[0] == content) {
      visit(RunView{contents, static_cast<uint32_t>(std::bit_width(live)), stride,
                    run.holders.load(std::memory_order_acquire)});  // I7
    }
    return false;
  });
}

extern template class RunStore<uint64_t>;
extern template class RunStore<BlockHash>;

}  // namespace kvcast::router
