// The copies that a scheduler of offloading hands out, as jobs of a TransferEngine.
//
// The engine's groups are to be configured as the scheduler's: for an OffloadScheduler one by one,
// with its layout().blocks_per_chunk and manager().slot_bytes(); for a SimpleOffload a single group
// that has whole blocks of the pool.
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

// What a TransferJob borrows. Kept by the caller and used again: its lists keep their memory.
struct TransferLists {
  std::vector<TransferGroup> groups;
  std::vector<SlotId> slots;
};

// `job`, of `scheduler`, in which every chunk's slots have their place. (Those of a compatible one
// may not, where windows gave blocks up: such a job the engine refuses, or fills wrongly.) Groups
// without blocks are left out. Borrows lists of both `job` and `lists`. `after`: see TransferJob.
TransferJob ToTransferJob(const OffloadJob& job, const OffloadScheduler& scheduler,
                          TransferLists& lists, void* after = nullptr);

// The loads or stores of a TransferStep, under an id of the caller's. Borrows lists of both `pairs`
// and `lists`.
TransferJob ToTransferJob(TransferJobId id, CopyDirection direction, const BlockPairs& pairs,
                          TransferLists& lists, void* after = nullptr);

}  // namespace kvcast
