// OffloadJob: blocks to be copied between the GPU and host memory, as the scheduler hands them out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/offload/offload_manager.h"

namespace kvcast {

// Loads and stores are numbered together, in order of creation.
using OffloadJobId = StrongId<struct OffloadJobIdTag, uint64_t>;

// The blocks of one request, group by group of OffloadScheduler::layout. Group g has group_sizes[g]
// of gpu_blocks; they lie in the slots of ceil((skip + group_sizes[g]) / blocks_per_chunk) chunks,
// which are OffloadManager::slots_per_chunk slots each, where
//   skip = block_indices[g] % blocks_per_chunk
// is the position of the first block inside its chunk. The blocks after it follow without gaps;
// block 0 stands for one that is not copied.
struct OffloadJob {
  OffloadJobId id;
  OffloadRequestId request;
  bool store = false;  // from GPU to host memory
  std::vector<BlockId> gpu_blocks;
  std::vector<int64_t> group_sizes;
  // By group: where in the request's table the first block is. Says nothing if there is none.
  std::vector<int64_t> block_indices;
  std::vector<SlotId> slots;  // by group, then by chunk
};

}  // namespace kvcast
