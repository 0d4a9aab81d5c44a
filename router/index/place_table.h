// PlaceTable: numbers for the places that hold blocks, a place being one (worker, tier, group).
//
// What a worker loses at once (a cleared tier, its registration) is lost by closing its places:
// readers pass over a closed one from then on, and what it held is swept away later.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "src/base/epoch.h"

namespace kvcast::router {

// Dense number of a registered worker; reused after the worker left.
using WorkerSlot = uint32_t;
using PlaceId = uint32_t;
inline constexpr PlaceId kNoPlace = ~uint32_t{0};

struct Place {
  WorkerSlot slot = 0;
  uint8_t group = 0;
  Tier tier = Tier::kGpu;
};

// One writer at a time; Read: any thread that is pinned in `epochs`, beside the writer.
class PlaceTable {
 public:
  explicit PlaceTable(EpochDomain& epochs) : epochs_(epochs) {}
  ~PlaceTable();
  PlaceTable(const PlaceTable&) = delete;
  PlaceTable& operator=(const PlaceTable&) = delete;

  // The place of that number; nullopt: closed.
  std::optional<Place> Read(PlaceId id) const {
    const uint64_t word =
        places_.load(std::memory_order_acquire)[id].load(std::memory_order_acquire);
    if (word == kClosed) return std::nullopt;
    return Place{static_cast<WorkerSlot>(word >> 16), static_cast<uint8_t>(word >> 8),
                 static_cast<Tier>(word & 0xFF)};
  }

  PlaceId Open(const Place& place);
  // Whatever is left at a closed place is nobody's.
  void Close(PlaceId id);

  // Places whose blocks are to be swept: BeginSweep takes all that are closed by now, EndSweep says
  // that nothing lies there any more, so that their numbers may be used again.
  bool sweeping() const { return !swept_.empty(); }
  bool BeginSweep();
  void EndSweep();
  bool any_closed() const { return !closed_.empty() || !swept_.empty(); }
  size_t size() const { return used_; }  // numbers given out, closed ones included

 private:
  using Word = std::atomic<uint64_t>;  // slot << 16 | group << 8 | tier
  static constexpr uint64_t kClosed = ~uint64_t{0};

  void Grow();

  EpochDomain& epochs_;
  std::atomic<Word*> places_{nullptr};
  size_t capacity_ = 0;
  size_t used_ = 0;
  std::vector<PlaceId> free_;
  std::vector<PlaceId> closed_;
  std::vector<PlaceId> swept_;
};

}  // namespace kvcast::router
