// HolderTable: numbers for the holders of blocks. A holder is one (worker, tier, group).
//
// To remove all blocks of a tier, or all blocks of a worker, in one step, the writer closes the
// holders. Readers ignore a closed holder. A sweep later removes the blocks of closed holders from
// the runs.
//
// The table also has the address of each worker's version. A writer that moves blocks uses this
// address to make the versions of the blocks' holders odd. Numbers such as I1 in comments are the
// invariants of README.md in this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/core/tier.h"
#include "kvcast/router/prefix_index.h"
#include "router/index/change_log.h"
#include "router/index/worker_slot.h"
#include "src/base/reclaim_domain.h"

namespace kvcast::router {

using HolderId = uint32_t;
inline constexpr HolderId kNoHolderId = ~uint32_t{0};

struct Holder {
  WorkerSlot slot = 0;
  uint8_t group = 0;
  Tier tier = Tier::kGpu;
};

// Threads: one writer (I0). Read may be called by any thread that holds a Pin of `reclaim`, while
// the writer works.
class HolderTable {
 public:
  explicit HolderTable(ReclaimDomain& reclaim) : reclaim_(reclaim) {}
  ~HolderTable();
  HolderTable(const HolderTable&) = delete;
  HolderTable& operator=(const HolderTable&) = delete;

  // The holders, as words that SlotOf and KindOf read. If HolderSet::size() was called before
  // words(), the result of words() has every holder of the set.
  class Words {
   public:
    uint64_t At(HolderId id) const { return words_[id].load(std::memory_order_acquire); }  // I8

   private:
    friend class HolderTable;
    explicit Words(const std::atomic<uint64_t>* words) : words_(words) {}
    const std::atomic<uint64_t>* words_;
  };
  Words words() const { return Words(words_.load(std::memory_order_acquire)); }  // I8
  // The slot of the holder's worker; above all slots if the holder is closed.
  static uint64_t SlotOf(uint64_t word) { return word >> 16; }
  // group << 8 | tier. REQUIRES: the holder is open.
  static uint16_t KindOf(uint64_t word) { return static_cast<uint16_t>(word); }

  // Returns the holder of this number; nullopt: the holder is closed.
  std::optional<Holder> Read(HolderId id) const {
    const uint64_t word = words().At(id);
    if (word == kClosed) return std::nullopt;
    const uint16_t kind = KindOf(word);
    return Holder{static_cast<WorkerSlot>(SlotOf(word)), static_cast<uint8_t>(kind >> 8),
                  static_cast<Tier>(kind & 0xFF)};
  }

  // The changes of workers. A writer must log a change before it makes a version odd.
  ChangeLog& changes() { return changes_; }
  const ChangeLog& changes() const { return changes_; }

  HolderId Open(const Holder& holder);
  // Must be called if the current batch will close the holder. The holder's next bits are ignored
  // from then on.
  void Condemn(HolderId id);
  bool IsCondemned(HolderId id) const { return condemned_[id]; }
  // Closes the holder. The blocks of a closed holder belong to no worker.
  void Close(HolderId id);

  // Sets the version of the worker in this slot (I1). nullptr: the slot has no worker. The version
  // must exist until it is replaced.
  void SetVersion(WorkerSlot slot, std::atomic<uint64_t>* version);
  // A writer that moves blocks must call BeginMove for each holder of these blocks, before the
  // first change that readers can see. It must call EndMove after the last change. BeginMove makes
  // the version of the holder's worker odd, unless it is odd already. EndMove makes these versions
  // even. REQUIRES: the holder is open, and its worker has a version.
  void BeginMove(HolderId id);
  void EndMove();

  // BeginSweep selects all closed holders. False: there are none. EndSweep must be called when no
  // run has bits of the selected holders. Open may use their numbers again when no reader is pinned
  // that was pinned at this time.
  bool sweeping() const { return !swept_.empty(); }
  bool BeginSweep();
  void EndSweep();
  bool any_closed() const { return !closed_.empty() || !swept_.empty(); }
  // The number of ids so far, including the ids of closed holders and free ids.
  size_t size() const { return used_; }

 private:
  using Word = std::atomic<uint64_t>;  // slot << 16 | group << 8 | tier; I8
  static constexpr uint64_t kClosed = ~uint64_t{0};

  void Grow();

  ReclaimDomain& reclaim_;
  ChangeLog changes_;
  std::atomic<Word*> words_{nullptr};  // I8
  size_t capacity_ = 0;
  size_t used_ = 0;
  std::vector<HolderId> free_;
  std::vector<HolderId> closed_;
  std::vector<HolderId> swept_;
  std::vector<bool> condemned_;                   // by holder
  std::vector<std::atomic<uint64_t>*> versions_;  // writer; I1; by slot; nullptr: no worker
  std::vector<std::atomic<uint64_t>*> moving_;  // writer; I1; the versions that BeginMove made odd
};

// The open holders of one worker. For the writer only.
class OwnHolders {
 public:
  // Returns the holder of the tier and group; kNoHolderId: it is not open.
  HolderId At(Tier tier, uint8_t group) const {
    const std::vector<HolderId>& of_tier = by_tier_[static_cast<size_t>(tier)];
    return group < of_tier.size() ? of_tier[group] : kNoHolderId;
  }
  const std::vector<HolderId>& all() const { return all_; }
  // By group; kNoHolderId: the holder of the group is not open.
  const std::vector<HolderId>& of(Tier tier) const { return by_tier_[static_cast<size_t>(tier)]; }

  // REQUIRES: the holder of the tier and group is not open.
  void Add(Tier tier, uint8_t group, HolderId id);
  // Forgets the holders of the tier.
  void Clear(Tier tier);

 private:
  std::array<std::vector<HolderId>, kTiers> by_tier_;  // by tier and group
  std::vector<HolderId> all_;
};

}  // namespace kvcast::router
