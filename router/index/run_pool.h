// RunPool: the runs of a RunStore by number, and the memory of their arrays.
//
// Numbers such as I3 in comments are the invariants of README.md in this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/router/content_key.h"
#include "router/index/holder_set.h"
#include "src/base/reclaim_domain.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {

inline constexpr uint32_t kRunKeys = 64;
inline constexpr uint32_t kLeastRunKeys = 8;  // least capacity of a run

// A run takes 56 bytes. Readers load `live` first. If a reader sees a live bit, it also sees the
// keys of that slot and of all slots below (I3).
template <typename Key>
struct Run {
  std::atomic<uint64_t> live{0};               // I3, I4
  std::atomic<Key*> keys{nullptr};             // I3
  std::atomic<ContentKey*> contents{nullptr};  // I3; nullptr: the run's blocks are unnamed
  std::atomic<HolderSet*> holders{nullptr};    // I7
  // I6; hint: number of the run that most recently continued a block of this run
  std::atomic<uint32_t> next{0};
  std::atomic<uint32_t> stride{0};  // I3; tokens of each block; 0: unnamed
  uint8_t used = 0;                 // writer; slots in use
  uint8_t capacity = 0;             // writer; slots in the arrays
  bool has_twins = false;           // writer; RunStore::twin_slots_ has an entry of the run
  bool retired = false;             // writer; no table has an entry of the run
  uint32_t owner = 0;               // writer; Holding::source that began the run
  uint32_t end = 0;                 // writer; BlockName::end_or_unproven of the first slot
};

// Threads: At may be called by any thread that holds a Pin of `reclaim`, while the writer works.
// All other methods need the writer's lock (I0).
template <typename Key>
class RunPool {
 public:
  RunPool(SlabArena& arena, ReclaimDomain& reclaim) : arena_(arena), reclaim_(reclaim) {}
  ~RunPool();
  RunPool(const RunPool&) = delete;
  RunPool& operator=(const RunPool&) = delete;

  // I6: a reader passes only a number that it read from a table entry or from `next`.
  Run<Key>& At(uint32_t run) const {
    return directory_.load(std::memory_order_acquire)[run / kSegmentRuns].load(
        std::memory_order_acquire)[run % kSegmentRuns];
  }
  // Returns a number that is greater than the number of every run. No run has the number 0.
  uint32_t end() const { return runs_; }

  // Returns the capacity of a new run for this number of keys, at most kRunKeys.
  static uint32_t RoomFor(size_t keys);
  // Makes a run without slots and holders, with room for `keys` keys. Returns its number.
  uint32_t New(size_t keys, uint32_t stride);
  // Makes a run with copies of these slots of run `number`, in the same order and without gaps, and
  // with their holders. Returns its number. REQUIRES: all changes are published.
  uint32_t CopyOf(uint32_t number, uint64_t slots);
  // Moves the slots of the run to arrays with room for `keys` keys.
  void Grow(Run<Key>& run, size_t keys);
  // REQUIRES: `set` has all holders of the old set that are not empty.
  void ReplaceHolders(Run<Key>& run, HolderSet* set);
  // Frees the run and its number. REQUIRES: no table entry has the number.
  void Free(uint32_t number);

 private:
  static constexpr size_t kSegmentRuns = 1024;
  using Directory = std::atomic<Run<Key>*>;

  void AddSegment();
  Key* NewKeys(uint32_t capacity);
  ContentKey* NewContents(uint32_t capacity);
  static void FreeKeys(void* arena, uintptr_t keys);
  static void FreeInArena(void* arena, uintptr_t object);
  void RetireKeys(Key* keys);
  void RetireContents(ContentKey* contents);
  void RetireHolders(HolderSet* set);

  SlabArena& arena_;
  ReclaimDomain& reclaim_;
  std::atomic<Directory*> directory_{nullptr};  // I6
  size_t segments_ = 0;
  size_t directory_size_ = 0;
  uint32_t runs_ = 1;  // the next new number; 0 is no run
  std::vector<uint32_t> free_;
};

// RunPass: the numbers of the runs that a pass over a store must visit. The pass is made in steps.
// Between two steps, the writer may make, free and reuse runs, and move the blocks of a run to new
// runs. A block that stays in the store during the pass is visited exactly once.
class RunPass {
 public:
  // Returns the next run; 0: the pass has ended. `end`: RunPool::end().
  uint32_t Next(uint32_t end) {
    while (next_ < end) {
      const uint32_t run = next_++;
      if (!visited_.contains(run)) return run;
    }
    if (behind_.empty()) return 0;
    const uint32_t run = *behind_.begin();
    behind_.erase(run);
    return run;
  }
  // The run `to` is new, and all its blocks come from the run `from`.
  void NoteMove(uint32_t from, uint32_t to) {
    const bool is_ahead = to >= next_;
    if (IsVisited(from)) {
      if (is_ahead) visited_.insert(to);
    } else if (!is_ahead) {
      behind_.insert(to);
    }
  }
  void NoteFree(uint32_t run) {
    visited_.erase(run);
    behind_.erase(run);
  }

 private:
  bool IsVisited(uint32_t run) const {
    return run < next_ ? !behind_.contains(run) : visited_.contains(run);
  }

  uint32_t next_ = 1;
  std::unordered_set<uint32_t> visited_;  // runs from next_ on whose blocks were visited
  std::unordered_set<uint32_t> behind_;   // runs below next_ whose blocks were not visited
};

// Moves the bits of `word` at the positions that are set in `mask` to the low bits of the result.
uint64_t PackBits(uint64_t word, uint64_t mask);

extern template class RunPool<uint64_t>;
extern template class RunPool<BlockHash>;

}  // namespace kvcast::router
