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

// The blocks of one request, grouped by the groups of OffloadScheduler::layout. Group g has the
// next group_sizes[g] blocks of gpu_blocks. These blocks are in the slots of ceil((skip +
// group_sizes[g]) / blocks_per_chunk) chunks, with OffloadManager::slots_per_chunk slots each,
// where
//   skip = block_indices[g] % blocks_per_chunk
// is the position of the first block inside its chunk. The following blocks are adjacent to it,
// without gaps. Block id 0 stands for a position that is not copied.
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
