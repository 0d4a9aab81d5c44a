// GrowthCurve: measures the cost of one index at several sizes, while the index grows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "apps/bench/growth/growing_index.h"
#include "kvcast/core/status.h"

namespace kvcast::bench {

struct GrowthPoint {
  double residencies = 0;  // according to the counters of the index
  double held = 0;         // (worker, block) pairs that the index must hold; see GrowingIndex::held
  double grow_ns = 0;      // per block, while the index grew to this size
  double apply_ns = 0;     // per block, while old blocks are replaced by new ones
  double query_p50_us = 0;  // of one query
  double query_p99_us = 0;
  double bytes = 0;            // per residency, after Reclaim
  double grown_bytes = 0;      // per residency, before Reclaim
  double batch_ms = 0;         // the longest batch
  double batch_cpu_ms = 0;     // the largest CPU time of a batch
  double batch_faults = 0;     // page faults in the batch with batch_cpu_ms
  double page_ms = 0;          // see MeasureFreshHugePage
  double reclaim_wait_ms = 0;  // the longest batch of one block while Reclaim runs
  double reclaim_s = 0;        // total time of Reclaim
  // Share of the CPU that other processes and the hypervisor used since the previous point, in
  // percent. 0 if the share is unknown.
  double others_pct = 0;
  uint64_t wrong = 0;  // answers that contradict the content
  bool full = false;   // the index stopped growing because the memory was full
};

struct GrowthLimits {
  int64_t queries = 0;  // at each size
  int64_t memory = 0;   // memory limit of the process, in bytes
};

// The sizes to measure. The first size is 10^6, or an eighth of `most` if this is less. Each size
// before the last is twice the previous size. The last size is `most`.
// REQUIRES: most >= 8.
std::vector<int64_t> GrowthSizes(int64_t most);

class GrowthCurve {
 public:
  GrowthCurve(uint64_t workers, const GrowthLimits& limits) : limits_(limits), index_(workers) {}

  // Must be called first.
  Status Begin();
  // True: the process uses almost all memory of the limit, so the index should not grow more.
  bool is_full() const;
  // Grows the index to about this size and measures it. If the memory is full, the index grows by
  // one wave only.
  Result<GrowthPoint> Measure(int64_t residencies);
  uint64_t held() const { return index_.held(); }

 private:
  // Resident bytes per held (worker, block) pair, without the bytes of the process before the
  // growth.
  double BytesPerPair() const;

  const GrowthLimits limits_;
  GrowingIndex index_;
  int64_t begin_bytes_ = 0;  // resident bytes of the process while the index held no blocks
};

}  // namespace kvcast::bench
