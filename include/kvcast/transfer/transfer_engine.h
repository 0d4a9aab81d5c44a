// TransferEngine: executes the store and load jobs of an offload scheduler.
//
// A job moves blocks of any groups in one direction. The engine converts it into few large copies,
// passes these to a CopyBackend in batches (loads before stores), and reports the jobs that have
// ended.
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

// The caller's number of a job.
using TransferJobId = StrongId<struct TransferJobIdTag, uint64_t>;

// Blocks of one group, and the chunks that hold them in host memory. blocks[i] is block number
// first_block + i, counted over all these chunks. Chunk c holds the blocks [c * blocks_per_chunk,
// (c + 1) * blocks_per_chunk). Null blocks (id 0) are not copied; their position in the chunk stays
// unused.
struct TransferGroup {
  GroupIdx group;
  uint32_t first_block = 0;  // < blocks_per_chunk
  std::span<const BlockId> blocks;
  std::span<const SlotId> slots;  // all slots of each chunk; see HostLayout
};

struct TransferJob {
  TransferJobId id;  // must not be the id of a job in progress
  CopyDirection direction = CopyDirection::kStore;
  std::span<const TransferGroup> groups;
  // See CopyBackend::Submit. The event must exist, and must not be recorded again, until the job
  // has ended.
  void* after = nullptr;
};

// Result of one job.
struct TransferResult {
  TransferJobId id;
  // kInvalidArgument: the job is invalid (the message names the cause), and nothing was copied.
  // kUnavailable: the backend failed. The content of the job's destinations is then undefined.
  Status status;
};

struct TransferGroupConfig {
  GroupLayout layout;
  uint32_t blocks_per_chunk = 1;
};

struct TransferConfig {
  std::vector<TransferGroupConfig> groups;  // by group index
  HostLayout host;
  // Limits of a batch: bytes and copies. A batch must be large enough to hide the time between two
  // batches, and small enough for an early start of the first copy.
  size_t max_batch_bytes = size_t{16} << 20;
  size_t max_batch_ops = 4096;
  int batches_in_flight = 4;  // per direction
  // Limit of store batches in flight while loads are queued. The limit is low, because requests
  // wait for loads, not for stores. With 1, stores still make progress, so a step that must flush
  // stores does not wait for the loads.
  int store_batches_beside_loads = 1;
  // False: the engine has no thread; copies make progress only within Submit, Poll, Wait and
  // WaitAll.
  bool own_thread = true;
};

// Counters since creation, per direction.
struct TransferStats {
  struct Lane {
    uint64_t jobs = 0;  // jobs that ended, including failed jobs
    uint64_t failed_jobs = 0;
    uint64_t blocks = 0;
    uint64_t bytes = 0;
    uint64_t ops = 0;  // copies after merging
    uint64_t batches = 0;
    // Seconds in which at least one job was in progress. The copy rate is bytes / busy_seconds.
    double busy_seconds = 0;
  };
  Lane loads;
  Lane stores;
};

// Jobs of one direction start in the order of submission; several may be in progress. Two jobs in
// progress must not access the same memory, unless both jobs only read this memory. The source and
// the destination of a store, and the destination of a load, belong to the job until Poll returns
// its result.
//
// Thread-safe. Allocates nothing in steady state.
class TransferEngine {
 public:
  // `backend` is used only by this engine. Error: kInvalidArgument; the message names the field of
  // the configuration.
  static Result<std::unique_ptr<TransferEngine>> Create(TransferConfig config,
                                                        std::unique_ptr<CopyBackend> backend);
  // Waits for the batches in progress, and drops all copies that have not started.
  ~TransferEngine();

  // Submits a job. The call reads the spans before it returns, and waits for no copy. Exception:
  // without own_thread, the call waits until the Wait and WaitAll calls of other threads have
  // returned. Every submitted job gets exactly one result.
  void Submit(const TransferJob& job);

  // Appends the results of the jobs that ended since the last call, in the order in which they
  // ended.
  void Poll(std::vector<TransferResult>& results);

  // Blocks until none of the jobs is in progress. The results are available through Poll.
  void Wait(std::span<const TransferJobId> jobs);
  // Blocks until no job is in progress.
  void WaitAll();

  size_t jobs_under_way() const;
  TransferStats stats() const;

 private:
  class Impl;
  explicit TransferEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
