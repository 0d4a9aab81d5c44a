// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/workload.h"

#include <unordered_map>

namespace kvcast::simulate {

void LinkTurns(Slice& slice) {
  // A block's name stands for the block and all blocks before it. So the name of the last whole
  // block identifies the prompt.
  std::unordered_map<uint64_t, std::vector<size_t>> open;  // requests by their last whole block
  for (size_t i = 0; i < slice.requests.size(); ++i) {
    WorkloadRequest& request = slice.requests[i];
    // Begin with the last block, to find the longest continued prompt first.
    for (size_t b = request.blocks.size(); b-- > 1;) {
      const auto found = open.find(request.blocks[b]);
      if (found == open.end()) continue;
      std::vector<size_t>& candidates = found->second;
      size_t k = 0;
      const auto fits = [&](const WorkloadRequest& earlier) {
        return earlier.prompt_tokens + earlier.output_tokens <= request.prompt_tokens;
      };
      while (k < candidates.size() && !fits(slice.requests[candidates[k]])) ++k;
      if (k == candidates.size()) continue;
      WorkloadRequest& earlier = slice.requests[candidates[k]];
      earlier.next = static_cast<int64_t>(i);
      request.session = earlier.session;
      candidates.erase(candidates.begin() + static_cast<ptrdiff_t>(k));
      break;
    }
    if (request.blocks.size() > 1) open[request.blocks.back()].push_back(i);
  }
}

}  // namespace kvcast::simulate
