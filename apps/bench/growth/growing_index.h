// GrowingIndex: an index whose workers hold more and more Conversations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "apps/bench/growth/conversation_batches.h"
#include "apps/bench/growth/conversations.h"
#include "apps/bench/growth/reclaim_pause.h"
#include "apps/support/samples.h"
#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {

class GrowingIndex {
 public:
  explicit GrowingIndex(uint64_t workers) : content_(workers) {}

  // Registers the workers.
  Status AddWorkers();
  // (worker, block) pairs that the workers hold by the definition of the content.
  uint64_t held() const {
    return has_systems_ ? content_.system_residencies() + waves() * content_.wave_residencies() : 0;
  }
  // The same number according to the counters of the index. Not ok: the index refused or ignored an
  // event, or the numbers differ, so the measurement is invalid.
  Result<uint64_t> CountedResidencies() const;

  // The cost of batches.
  struct ApplyCost {
    uint64_t blocks = 0;         // that were stored or removed
    double ns = 0;               // total time of Apply
    Samples wave_ns;             // per block, one sample for each wave
    double longest_ns = 0;       // of a batch
    double longest_cpu_ns = 0;   // the largest CPU time of a batch
    int64_t longest_faults = 0;  // page faults in the batch with longest_cpu_ns
  };
  using IsFull = std::function<bool()>;
  // Stores waves until the workers hold about `pairs` pairs, and at least one wave. Stops after a
  // wave if `is_full()` is true.
  ApplyCost Grow(uint64_t pairs, const IsFull& is_full);
  // Replaces the oldest waves by new waves, until about `blocks` blocks are stored or removed, and
  // at least one wave is replaced. Stops after a wave if `is_full()` is true.
  ApplyCost Replace(uint64_t blocks, const IsFull& is_full);

  struct QueryResults {
    Samples ns;
    uint64_t wrong = 0;  // answers that contradict the content
  };
  // Sends queries for random prompts that are partly held. Three of four prompts are the next turn
  // of a held conversation. The other prompts begin a new conversation of a held project. REQUIRES:
  // Grow was called.
  QueryResults Ask(uint64_t queries);
  // Another worker stores some of the held prompts, and is removed. Measures the Reclaim that then
  // frees its blocks.
  Result<ReclaimPause> MeasureLeave();

 private:
  uint64_t waves() const { return end_ - begin_; }
  void Apply(const WorkerBatch& batch, ApplyCost& cost);
  // Stores a new wave. If `evicts` is true, evicts the oldest wave at the same time.
  void ApplyWave(bool evicts, ApplyCost& cost);
  void StoreSystems(WorkerId worker, ApplyCost& cost);
  bool IsRight(std::span<const WorkerMatch> matches, uint64_t conversation, bool next_turn) const;

  const Conversations content_;
  ConversationBatches batches_{content_};
  PrefixIndex index_;
  bool has_systems_ = false;
  uint64_t begin_ = 0;  // the oldest wave that is held
  uint64_t end_ = 0;    // the next new wave
  uint64_t asked_ = 0;
};

}  // namespace kvcast::bench
