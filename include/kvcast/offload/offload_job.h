// OffloadJob: a set of blocks that must be copied between the GPU and host memory, as a scheduler
// returns it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/offload/offload_manager.h"

namespace kvcast {

// Number of a job. Loads and stores have one common sequence of numbers, in the order of creation.
using OffloadJobId = StrongId<struct OffloadJobIdTag, uint64_t>;

// The blocks of one request, in the order of the groups of OffloadScheduler::layout. gpu_blocks has
// group_sizes[0] blocks of group 0, then group_sizes[1] blocks of group 1, and so on. The first
// block of group g is at position
//   skip = block_indices[g] % blocks_per_chunk
// of its chunk. The other blocks of the group follow it without gaps. The blocks of group g use
// ceil((skip + group_sizes[g]) / blocks_per_chunk) chunks. Each chunk has
// OffloadManager::slots_per_chunk slots. Block id 0 stands for a position that is not copied.
struct OffloadJob {
  OffloadJobId id;
  OffloadRequestId request;
  bool store = false;  // true: from GPU to host memory; false: load
  std::vector<BlockId> gpu_blocks;
  std::vector<int64_t> group_sizes;
  // By group: index of the first block in the block table of the request. Unused for a group
  // without blocks.
  std::vector<int64_t> block_indices;
  std::vector<SlotId> slots;  // by group, then by chunk
};

}  // namespace kvcast
