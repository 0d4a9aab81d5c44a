// PlaceTable: numbers for the places that hold blocks. A place is one (worker, tier, group).
//
// To remove all blocks of a tier, or all blocks of a worker, in one step, the writer closes the
// places. Readers ignore a closed place. A sweep later removes the blocks of closed places from the
// runs.
//
// The table also has the address of each worker's version. A writer that moves blocks uses it to
// make the versions of their holders odd. Numbers such as I1 in comments are the invariants of
// README.md in this folder.
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
#include "src/base/epoch.h"

namespace kvcast::router {

using PlaceId = uint32_t;
inline constexpr PlaceId kNoPlace = ~uint32_t{0};

struct Place {
  WorkerSlot slot = 0;
  uint8_t group = 0;
  Tier tier = Tier::kGpu;
};

// Threads: one writer (I0). Read may be called by any thread that holds a Pin of `epochs`, while
// the writer works.
class PlaceTable {
 public:
  explicit PlaceTable(EpochDomain& epochs) : epochs_(epochs) {}
  ~PlaceTable();
  PlaceTable(const PlaceTable&) = delete;
  PlaceTable& operator=(const PlaceTable&) = delete;

  // The places, as words that SlotOf and KindOf read. An object has every place of a holder set
  // whose size was loaded before the object was made.
  class Words {
   public:
    uint64_t At(PlaceId id) const { return words_[id].load(std::memory_order_acquire); }  // I8

   private:
    friend class PlaceTable;
    explicit Words(const std::atomic<uint64_t>* words) : words_(words) {}
    const std::atomic<uint64_t>* words_;
  };
  Words words() const { return Words(places_.load(std::memory_order_acquire)); }  // I8
  // The slot of the place's worker; above all slots if the place is closed.
  static uint64_t SlotOf(uint64_t word) { return word >> 16; }
  // group << 8 | tier. REQUIRES: the place is open.
  static uint16_t KindOf(uint64_t word) { return static_cast<uint16_t>(word); }

  // Returns the place of this number; nullopt: the place is closed.
  std::optional<Place> Read(PlaceId id) const {
    const uint64_t word = words().At(id);
    if (word == kClosed) return std::nullopt;
    const uint16_t kind = KindOf(word);
    return Place{static_cast<WorkerSlot>(SlotOf(word)), static_cast<uint8_t>(kind >> 8),
                 static_cast<Tier>(kind & 0xFF)};
  }

  // The changes of workers. A writer must log a change before it makes a version odd.
  ChangeLog& changes() { return changes_; }
  const ChangeLog& changes() const { return changes_; }

  PlaceId Open(const Place& place);
  // Closes the place. The blocks of a closed place belong to no worker.
  void Close(PlaceId id);

  // Sets the version of the worker in this slot (I1). nullptr: the slot has no worker. The version
  // must exist until it is replaced.
  void SetVersion(WorkerSlot slot, std::atomic<uint64_t>* version);
  // A writer that moves blocks must call BeginMove for each place that holds them, before the first
  // change that readers can see. It must call EndMove after the last change. BeginMove makes the
  // version of the place's worker odd, unless it is odd already. EndMove makes these versions even.
  // REQUIRES: the place is open, and its worker has a version.
  void BeginMove(PlaceId id);
  void EndMove();

  // BeginSweep selects all closed places. False: there are none. EndSweep must be called when no
  // run has bits of the selected places. Open may then use their numbers again.
  bool sweeping() const { return !swept_.empty(); }
  bool BeginSweep();
  void EndSweep();
  bool any_closed() const { return !closed_.empty() || !swept_.empty(); }
  size_t size() const { return used_; }  // place numbers so far, free and closed ones included

 private:
  using Word = std::atomic<uint64_t>;  // slot << 16 | group << 8 | tier; I8
  static constexpr uint64_t kClosed = ~uint64_t{0};

  void Grow();

  EpochDomain& epochs_;
  ChangeLog changes_;
  std::atomic<Word*> places_{nullptr};  // I8
  size_t capacity_ = 0;
  size_t used_ = 0;
  std::vector<PlaceId> free_;
  std::vector<PlaceId> closed_;
  std::vector<PlaceId> swept_;
  std::vector<std::atomic<uint64_t>*> versions_;  // writer; I1; by slot; nullptr: no worker
  std::vector<std::atomic<uint64_t>*> moving_;    // writer; I1; those that BeginMove made odd
};

// The open places of one worker. Writer.
class OwnPlaces {
 public:
  // Returns the place of the tier and group; kNoPlace: it is not open.
  PlaceId At(Tier tier, uint8_t group) const {
    const std::vector<PlaceId>& of_tier = by_tier_[static_cast<size_t>(tier)];
    return group < of_tier.size() ? of_tier[group] : kNoPlace;
  }
  const std::vector<PlaceId>& all() const { return all_; }
  // By group; kNoPlace: the place of the group is not open.
  const std::vector<PlaceId>& of(Tier tier) const { return by_tier_[static_cast<size_t>(tier)]; }

  // REQUIRES: the place of the tier and group is not open.
  void Add(Tier tier, uint8_t group, PlaceId place);
  // Forgets the places of the tier.
  void Clear(Tier tier);

 private:
  std::array<std::vector<PlaceId>, kTiers> by_tier_;  // by tier and group
  std::vector<PlaceId> all_;
};

}  // namespace kvcast::router
