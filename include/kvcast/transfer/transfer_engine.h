// TransferEngine: carries out the store and load jobs of an offload scheduler.
//
// A job moves blocks of any groups in one direction. The engine plans it as few large copies, feeds
// them to a CopyBackend in batches, loads before stores, and tells which jobs ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/transfer/block_layout.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast {

using TransferJobId = StrongId<struct TransferJobIdTag, uint64_t>;

// Blocks of one group and the chunks they belong to. blocks[i] is block first_block + i of the
// chunks, counted over all of them: chunk c holds blocks [c * blocks_per_chunk, (c + 1) *
// blocks_per_chunk). Null blocks (id 0) are passed over, and their place in the chunk with them.
struct TransferGroup {
  GroupIdx group;
  uint32_t first_block = 0;  // < blocks_per_chunk
  std::span<const BlockId> blocks;
  std::span<const SlotId> slots;  // slots_per_chunk for each chunk
};

struct TransferJob {
  TransferJobId id;  // the caller's; none that is under way
  CopyDirection direction = CopyDirection::kStore;
  std::span<const TransferGroup> groups;
  void* after = nullptr;  // see CopyBackend::Submit
};

struct TransferResult {
  TransferJobId id;
  // Not ok: the job's destinations hold anything. kInvalidArgument names what was wrong with the
  // job, of which then nothing was copied; kUnavailable: the backend failed.
  Status status;
};

struct TransferGroupConfig {
  GroupLayout layout;
  uint32_t blocks_per_chunk = 1;
};

struct TransferConfig {
  std::vector<TransferGroupConfig> groups;  // by group index
  HostLayout host;
  // Batches: large enough to outlast the way from one batch's end to the next one's start, small
  // enough for the first copy to start early.
  size_t max_batch_bytes = size_t{16} << 20;
  size_t max_batch_ops = 4096;
  int batches_in_flight = 4;  // in each direction
  // Of stores, while loads wait for their turn: a request waits for a load, and nobody for a store.
  // 1 keeps stores going, so that a step that has to flush them does not wait for the loads.
  int store_batches_beside_loads = 1;
  // False: no thread; copies make progress only within Submit, Poll and Wait.
  bool own_thread = true;
};

struct TransferStats {
  struct Lane {
    uint64_t jobs = 0;  // ended, failed ones among them
    uint64_t failed_jobs = 0;
    uint64_t blocks = 0;
    uint64_t bytes = 0;
    uint64_t ops = 0;  // after merging
    uint64_t batches = 0;
    // In which at least one job was under way; the rate of these copies is bytes / busy_seconds.
    double busy_seconds = 0;
  };
  Lane loads;
  Lane stores;
};

// Jobs of one direction start in order of submission, and several may be under way. The caller
// keeps jobs apart that touch the same memory: a store's source and destination, and a load's
// destination, belong to the job until its result is told.
// Thread-safe. Steady traffic allocates nothing.
class TransferEngine {
 public:
  // Not ok: a field of the configuration, by name. `backend` is driven by this engine alone.
  static Result<std::unique_ptr<TransferEngine>> Create(TransferConfig config,
                                                        std::unique_ptr<CopyBackend> backend);
  // Ends the copies that have started, and drops the jobs that have not.
  ~TransferEngine();

  // Never blocks on a copy. The spans are read before the call returns. Every submitted job gets
  // one result.
  void Submit(const TransferJob& job);

  // Appends the results of the jobs that ended since the last call, in order of ending.
  void Poll(std::vector<TransferResult>& results);

  // Blocks until none of the jobs is under way; their results are still Poll's to tell.
  void Wait(std::span<const TransferJobId> jobs);
  // Blocks until no job is under way.
  void WaitAll();

  size_t jobs_under_way() const;
  TransferStats stats() const;

 private:
  class Impl;
  explicit TransferEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
