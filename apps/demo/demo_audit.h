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

// Thread-safe: the threads of the service add batches, and the thread of the demo adds admissions.
class ExactnessAudit {
 public:
  ExactnessAudit(size_t workers, const WorkerConfig& config, int64_t hash_block_size);

  void OnBatch(size_t worker, uint64_t seq, std::shared_ptr<const EventBatch> batch);
  void OnAdmission(size_t worker, AuditedAdmission admission);
  // Returns the number of admissions that wait for batches.
  int64_t pending() const;
  // Returns the number of batches of all workers since the start.
  uint64_t batches() const;
  AuditTotals totals() const;
  AuditTotals totals(size_t worker) const;

 private:
  struct Worker {
    PrefixIndex index;
    bool in_order = true;                                   // each batch came once, in order
    uint64_t applied = 0;                                   // batches in the index
    std::deque<std::shared_ptr<const EventBatch>> batches;  // the first batch has seq `applied`
    std::deque<AuditedAdmission> admissions;  // in the order of their published counts
    AuditTotals totals;
  };
  void Advance(Worker& worker) KV_REQUIRES(mutex_);
  void Compare(Worker& worker, const AuditedAdmission& admission) KV_REQUIRES(mutex_);

  const int64_t hash_block_size_;
  const int64_t lookahead_;
  mutable Mutex mutex_;
  uint64_t batches_ KV_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Worker>> workers_ KV_GUARDED_BY(mutex_);
  std::string first_difference_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::tools
