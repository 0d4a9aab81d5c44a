// Churn: a fleet of workers with full caches. In every turn, one worker stores the blocks of a new
// prompt. It evicts the blocks of its oldest prompt with the same rank of holders. Everything is a
// function of the turn's number.
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

// A bijection of 64 bits whose values look random.
inline uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct ChurnConfig {
  int64_t residencies = 10'000'000;  // (worker, block) pairs once all caches are full; about
  int64_t workers = 64;
  int64_t groups = 1;    // number of groups; each holds every block
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
  // The holders of a chain store it one after another, with turns of other chains between.
  Turn At(uint64_t turn) const;
  // Before this turn, all caches are full.
  uint64_t steady_turn() const { return holders_ * (live_ + (holders_ - 1) * lag_); }
  // (worker, block) pairs from that turn on.
  uint64_t residencies() const { return live_ * holders_ * blocks_; }
  // The chains [first, last] that all their holders hold before `turn`, and still hold `margin`
  // chains later. `turn` must be at least the steady turn.
  struct Range {
    uint64_t first;
    uint64_t last;
  };
  Range FullyHeld(uint64_t turn, uint64_t margin) const;
  // Number of chains that the workers of one rank of holders hold together.
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
  uint64_t live_;  // chains that each rank of holders has
  uint64_t lag_;   // number of chains by which a rank of holders is behind the rank before
};

// The form in which an engine announces evicted blocks.
enum class Removes : uint8_t {
  kEach,    // one event per block, as vLLM
  kMerged,  // one event per step and group
};

// One operation on a residency, for the baseline map.
struct ResidencyOp {
  uint64_t hash;
  uint32_t worker;
  uint8_t group;
  bool erase;
};

// Makes the batches of a turn as an engine would send them: steps of 8,192 tokens. Each step evicts
// as many blocks as it stores, the tail of the oldest prompt first. The objects are reused for
// every turn.
class TurnBatches {
 public:
  TurnBatches(const Churn& churn, Removes removes);

  // Returns the batches of the turn, in order. They are valid until the next call. All token ids
  // are the same in every turn.
  std::vector<EventBatch>& Make(const Churn::Turn& turn);
  // Appends the same operations in the same order.
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
