// ToTransferJob: converts the copies of an offload scheduler into jobs of a TransferEngine.
//
// The groups of the engine must match the groups of the scheduler. For an OffloadScheduler: the
// same groups in the same order, with its layout().blocks_per_chunk and manager().slot_bytes(). For
// a SimpleOffload: a single group with whole blocks of the pool.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/offload/offload_job.h"
#include "kvcast/offload/offload_scheduler.h"
#include "kvcast/offload/simple_offload.h"
#include "kvcast/transfer/transfer_engine.h"

namespace kvcast {

inline TransferJobId TransferIdOf(OffloadJobId id) { return TransferJobId(id.value); }
inline OffloadJobId OffloadIdOf(TransferJobId id) { return OffloadJobId(id.value); }

// The memory that a TransferJob borrows. The caller owns it and may reuse it; its lists then keep
// their memory. It must exist until TransferEngine::Submit has returned.
struct TransferLists {
  std::vector<TransferGroup> groups;
  std::vector<SlotId> slots;
};

// Converts `job` of `scheduler`. Groups without blocks are omitted. The result borrows the lists of
// `job` and `lists`. `after`: see TransferJob.
//
// REQUIRES: every chunk of the job has its slots. If windows have released blocks, a job of a
// compatible scheduler may have too few or too many slots. The engine refuses such a job, or copies
// to wrong positions.
TransferJob ToTransferJob(const OffloadJob& job, const OffloadScheduler& scheduler,
                          TransferLists& lists, void* after = nullptr);

// Converts the loads or the stores of a TransferStep. The caller assigns `id`. The result borrows
// the lists of `pairs` and `lists`.
TransferJob ToTransferJob(TransferJobId id, CopyDirection direction, const BlockPairs& pairs,
                          TransferLists& lists, void* after = nullptr);

}  // namespace kvcast
