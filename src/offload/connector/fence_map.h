// FenceMap: the GPU blocks that running stores read without a reference to the blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/offload/offload_job.h"

namespace kvcast::offload {

class FenceMap {
 public:
  // A second call with the same arguments changes nothing.
  void Add(BlockId block, OffloadJobId job) {
    std::vector<OffloadJobId>& jobs = jobs_[block];
    if (std::find(jobs.begin(), jobs.end(), job) == jobs.end()) jobs.push_back(job);
  }
  // Blocks that the job does not fence stay unchanged.
  void Remove(std::span<const BlockId> blocks, OffloadJobId job) {
    for (const BlockId block : blocks) {
      const auto found = jobs_.find(block);
      if (found == jobs_.end()) continue;
      std::erase(found->second, job);
      if (found->second.empty()) jobs_.erase(found);
    }
  }
  // Adds the jobs that read the block to `readers`.
  void AddReaders(BlockId block, std::set<OffloadJobId>& readers) const {
    const auto found = jobs_.find(block);
    if (found != jobs_.end()) readers.insert(found->second.begin(), found->second.end());
  }
  void Clear() { jobs_.clear(); }

  std::vector<std::pair<BlockId, std::vector<OffloadJobId>>> List() const {
    std::vector<std::pair<BlockId, std::vector<OffloadJobId>>> list(jobs_.begin(), jobs_.end());
    for (auto& [block, jobs] : list) std::sort(jobs.begin(), jobs.end());
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  absl::flat_hash_map<BlockId, std::vector<OffloadJobId>> jobs_;
};

}  // namespace kvcast::offload
