// Churn: a fleet of workers with full caches. The holders of a prompt have ranks from 0 on. In
// every turn, one worker stores the blocks of a new prompt. The worker also evicts the oldest
// prompt that it holds with the same rank. The number of a turn determines its content.
//
// A chain is the sequence of block hashes of one prompt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"

namespace kvcast::bench {

inline constexpr int64_t kBlockTokens = 16;

// A bijection on 64-bit numbers. Its results look random.
inline uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct ChurnConfig {
  int64_t residencies = 10'000'000;  // approximate number of (worker, block) pairs in full caches
  int64_t workers = 64;
  int64_t groups = 1;    // number of groups; every group holds every block
  int64_t holders = 1;   // workers that hold a block; at most `workers`
  int64_t blocks = 625;  // blocks of a prompt
};

class Churn {
 public:
  explicit Churn(const ChurnConfig& config);

  struct Turn {
    WorkerId worker;
    uint64_t stored;                  // number of the chain
    std::optional<uint64_t> removed;  // number of the chain; nullopt while the caches fill
  };
  // The holders of a chain store it one after another. Turns of other chains lie between.
  Turn At(uint64_t turn) const;
  // From this turn on, the caches are full. The first chains, which the lowest ranks never store,
  // are evicted.
  uint64_t steady_turn() const { return holders_ * (live_ + (holders_ - 1) * lag_); }
  // Number of (worker, block) pairs from the steady turn on.
  uint64_t residencies() const { return live_ * holders_ * blocks_; }
  // The chains from `first` to `last`, both included. All holders of these chains hold them before
  // `turn`, and until each holder has stored `margin` more chains. `turn` must be at least the
  // steady turn. `margin` must be at least 1 if `turn` is not a multiple of the number of holders.
  struct Range {
    uint64_t first;
    uint64_t last;
  };
  Range FullyHeld(uint64_t turn, uint64_t margin) const;
  // Number of chains that all workers together hold with one rank.
  uint64_t live() const { return live_; }
  // The worker that holds the chain with this rank; rank < holders.
  WorkerId WorkerOf(uint64_t chain, uint64_t rank) const {
    return WorkerId(static_cast<uint32_t>((chain * holders_ + rank) % workers_));
  }

  uint64_t HashOf(uint64_t chain, uint64_t position) const {
    return Mix64(chain * blocks_ + position);
  }
  const ChurnConfig& config() const { return config_; }

 private:
  const ChurnConfig config_;
  const uint64_t holders_;
  const uint64_t workers_;
  const uint64_t blocks_;
  uint64_t live_;  // number of chains that are held with each rank
  uint64_t lag_;   // number of chains by which a rank is behind the previous rank
};

// The form in which an engine announces evicted blocks.
enum class Removes : uint8_t {
  kEach,    // one event per block, as in vLLM
  kMerged,  // one event per step and group
};

// One operation on a residency, for the baseline map.
struct ResidencyOp {
  uint64_t hash;
  uint32_t worker;
  uint8_t group;
  bool erase;
};

// Makes the batches of a turn as an engine would send them, with one batch per step of 8,192
// tokens. Each step evicts as many blocks as it stores, the tail of the oldest prompt first. All
// turns use the same objects.
class TurnBatches {
 public:
  TurnBatches(const Churn& churn, Removes removes);

  // Returns the batches of the turn, in order. They are valid until the next call. The token ids of
  // a block depend only on its hash.
  std::vector<EventBatch>& Make(const Churn::Turn& turn);
  // Appends the block operations of the turn's batches, in the order of the batches.
  void AppendOps(const Churn::Turn& turn, std::vector<ResidencyOp>& ops) const;
  // Number of block operations of a turn.
  int64_t ops(const Churn::Turn& turn) const;

 private:
  EventBatch StepShape(int64_t blocks, bool with_removes) const;

  const Churn& churn_;
  const Removes removes_;
  std::vector<EventBatch> filling_;
  std::vector<EventBatch> steady_;
};

}  // namespace kvcast::bench
