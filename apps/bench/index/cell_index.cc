// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/cell_index.h"

namespace kvcast::bench {

Result<std::unique_ptr<CellIndex>> CellIndex::Make(const Corpus& corpus, size_t shards) {
  std::unique_ptr<CellIndex> index(new CellIndex(corpus, shards));
  WorkerConfig config{.name = "worker"};
  config.groups.push_back({.block_size = corpus.block_tokens});
  for (uint32_t worker = 0; worker < corpus.workers; ++worker) {
    if (Status status = index->index_.AddWorker(WorkerId(worker), config); !status.ok()) {
      return status;
    }
  }
  return index;
}

uint64_t CellIndex::residencies() const {
  uint64_t pairs = 0;
  for (uint32_t worker = 0; worker < workers_; ++worker) {
    pairs += index_.counters(WorkerId(worker)).residencies;
  }
  return pairs;
}

}  // namespace kvcast::bench
