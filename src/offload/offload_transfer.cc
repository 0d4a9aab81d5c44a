// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/offload_transfer.h"

#include <algorithm>

#include "src/base/check.h"

namespace kvcast {

TransferJob ToTransferJob(const OffloadJob& job, const OffloadScheduler& scheduler,
                          TransferLists& lists, void* after) {
  const int64_t blocks_per_chunk = scheduler.layout().blocks_per_chunk;
  std::span<const BlockId> blocks(job.gpu_blocks);
  std::span<const SlotId> slots(job.slots);
  lists.groups.clear();
  for (uint32_t g = 0; g < job.group_sizes.size(); ++g) {
    const int64_t count = job.group_sizes[g];
    if (count == 0) continue;
    const int64_t skip = job.block_indices[g] % blocks_per_chunk;
    const int64_t chunks = CeilDiv(skip + count, blocks_per_chunk);
    const auto num_blocks = static_cast<size_t>(count);
    const GroupIdx group = scheduler.layout().groups[g].index;
    const auto num_slots = static_cast<size_t>(chunks * scheduler.manager().slots_per_chunk(group));
    KV_CHECK(num_blocks <= blocks.size());
    // A job of a `compatible` scheduler may have too few or too many slots. The last group then
    // gets all slots that are left. The transfer engine finds the wrong number of slots and refuses
    // the job.
    const bool last = num_blocks == blocks.size();
    lists.groups.push_back({group, static_cast<uint32_t>(skip), blocks.first(num_blocks),
                            slots.first(last ? slots.size() : std::min(num_slots, slots.size()))});
    blocks = blocks.subspan(num_blocks);
    slots = slots.subspan(lists.groups.back().slots.size());
  }
  const CopyDirection direction = job.store ? CopyDirection::kStore : CopyDirection::kLoad;
  return {TransferIdOf(job.id), direction, lists.groups, after};
}

TransferJob ToTransferJob(TransferJobId id, CopyDirection direction, const BlockPairs& pairs,
                          TransferLists& lists, void* after) {
  lists.slots.clear();
  for (const BlockId block : pairs.cpu) lists.slots.push_back(SlotId(block.value));
  lists.groups.assign(1, {GroupIdx(0), 0, pairs.gpu, lists.slots});
  return {id, direction, lists.groups, after};
}

}  // namespace kvcast
