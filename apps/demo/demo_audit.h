// ExactnessAudit: checks that the index and the engine's own lookup agree.
//
// An engine reports each admission with its own hit length and the number of batches that it had
// published before the lookup. The audit keeps one index per engine, and applies exactly this
// number of the batches that the router service decoded. The audit then looks up the same prompt
// in this index, with the block names that a query of the service uses: content keys and hashes.
// The delay of events has no influence on the comparison: every difference is an error.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/demo/prompt_namer.h"
#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/router/prefix_index.h"
#include "src/base/mutex.h"

namespace kvcast::tools {

// An admission with the facts that the audit needs.
struct AuditedAdmission {
  int64_t request = 0;
  int64_t hit_tokens = 0;     // on the GPU
  int64_t loaded_tokens = 0;  // after the hit, from host memory
  int64_t total_tokens = 0;   // the prompt, and the tokens sampled before a preemption
  uint64_t published = 0;     // batches that the engine had published before the lookup
  PromptNames names;          // no hash chain if the engine's hashes cannot be computed
};

struct AuditTotals {
  int64_t compared = 0;
  int64_t equal = 0;         // equal on the GPU, and equal with loads
  int64_t over_tokens = 0;   // tokens predicted beyond the engine's hit
  int64_t under_tokens = 0;  // tokens of the engine's hit that were not predicted
  std::string first_difference;
};

// Any thread may call OnBatch. The other functions must be called by one thread.
class ExactnessAudit {
 public:
  ExactnessAudit(size_t workers, const WorkerConfig& config, int64_t hash_block_size);

  // Only queues the batch: the service counts the time of this call as time of the source.
  void OnBatch(size_t worker, uint64_t seq, std::shared_ptr<const EventBatch> batch);
  // Compares the admission, or lets it wait for batches.
  void OnAdmission(size_t worker, AuditedAdmission admission);
  // Compares the admissions whose batches have arrived. Returns the number of admissions that still
  // wait for batches.
  int64_t CompareWaiting();
  // Returns the number of batches with events, of all workers since the start.
  uint64_t batches() const;
  AuditTotals totals() const;
  AuditTotals totals(size_t worker) const;

 private:
  using Batches = std::deque<std::shared_ptr<const EventBatch>>;
  struct Worker {
    PrefixIndex index;
    uint64_t applied = 0;                     // batches in the index
    Batches batches;                          // the first batch has seq `applied`
    std::deque<AuditedAdmission> admissions;  // in the order of their published counts
    AuditTotals totals;
  };
  struct Arrived {
    bool in_order = true;   // each batch came once, in order
    uint64_t next_seq = 0;  // of the next batch in order
    Batches batches;        // not taken yet
  };
  void Advance(size_t worker);
  void Compare(Worker& worker, const AuditedAdmission& admission);

  const int64_t hash_block_size_;
  const int64_t lookahead_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::string first_difference_;
  mutable Mutex mutex_;
  uint64_t batches_ KV_GUARDED_BY(mutex_) = 0;
  std::vector<Arrived> arrived_ KV_GUARDED_BY(mutex_);  // by worker
};

}  // namespace kvcast::tools
