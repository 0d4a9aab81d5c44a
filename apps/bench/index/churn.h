// Churn: a fleet of workers whose caches are full. In every turn one worker stores the blocks of a
// new prompt and evicts those of an old one, the oldest that it has in the same rank of holders.
// Everything follows from the number of the turn.
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
  int64_t groups = 1;    // that hold every block
  int64_t holders = 1;   // workers that hold a block; at most `workers`
  int64_t blocks = 625;  // of a prompt
};

class Churn {
 public:
  explicit Churn(const ChurnConfig& config);

  struct Turn {
    WorkerId worker;
    uint64_t stored;                  // chain
    std::optional<uint64_t> removed;  // chain; none while the caches fill
  };
  // The holders of one chain store it one after the other, with those of other chains between.
  Turn At(uint64_t turn) const;
  // The caches are full before this turn.
  uint64_t steady_turn() const { return holders_ * (live_ + (holders_ - 1) * lag_); }
  // (worker, block) pairs from then on.
  uint64_t residencies() const { return live_ * holders_ * blocks_; }
  // Chains that all their holders hold before `turn` (not before the steady one), and will for
  // `margin` chains more: [first, last].
  struct Range {
    uint64_t first;
    uint64_t last;
  };
  Range FullyHeld(uint64_t turn, uint64_t margin) const;
  // Chains that each worker of a rank of holders has, times the workers of that rank.
  uint64_t live() const { return live_; }
  // Who holds the chain; rank < holders.
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
  uint64_t lag_;   // chains by which one rank of holders is behind the one before
};

// How an engine says that blocks are gone.
enum class Removes : uint8_t {
  kEach,    // one event a block, as vLLM
  kMerged,  // one event a step and group
};

// One operation on a residency: what the floor does.
struct ResidencyOp {
  uint64_t hash;
  uint32_t worker;
  uint8_t group;
  bool erase;
};

// The turns as an engine would tell them: steps of 8,192 tokens; in each, as many blocks evicted as
// stored, the tail of the oldest prompt first. The objects are reused from turn to turn.
class TurnBatches {
 public:
  TurnBatches(const Churn& churn, Removes removes);

  // The batches of the turn, in order. Valid until the next call. Token ids stay what they are.
  std::vector<EventBatch>& Make(const Churn::Turn& turn);
  // The same as operations, in the same order.
  void AppendOps(const Churn::Turn& turn, std::vector<ResidencyOp>& ops) const;
  // Block operations of a turn.
  int64_t ops(const Churn::Turn& turn) const;

 private:
  EventBatch StepShape(int64_t blocks, bool with_removes) const;

  const Churn& churn_;
  const Removes removes_;
  std::vector<EventBatch> filling_;
  std::vector<EventBatch> steady_;
};

}  // namespace kvcast::bench
