// CellIndex: the index that `kvcast bench cells` measures. Its functions make the same calls as a
// router. Only this file contains the measured query.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "apps/bench/index/corpus.h"
#include "apps/bench/index/corpus_events.h"
#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {

class CellIndex {
 public:
  // Returns an empty index with the workers of the corpus.
  static Result<std::unique_ptr<CellIndex>> Make(const Corpus& corpus, size_t shards);

  void Apply(const WorkerBatch& batch) { index_.Apply(batch.worker, batch.batch); }
  void ApplyAll(std::span<const WorkerBatch> batches) {
    for (const WorkerBatch& batch : batches) Apply(batch);
  }
  // Number of (worker, block) pairs that the index holds.
  uint64_t residencies() const;

  // Sends the query of a router that needs only the scores of a prompt. Thread-safe.
  using Answer = std::vector<WorkerScore>;
  Answer Ask(std::span<const uint64_t> chain) const {
    return index_.Scores({.hash_block_size = block_tokens_,
                          .prompt_tokens = std::ssize(chain) * block_tokens_ + 1,
                          .integer_hashes = chain});
  }
  // Calls visit(worker, blocks) for each worker that holds at least the first block of the prompt.
  template <typename Visit>
  void ForEachScore(const Answer& answer, Visit visit) const {
    for (const WorkerScore& score : answer) {
      visit(score.worker.value, score.gpu_tokens / block_tokens_);
    }
  }

 private:
  CellIndex(const Corpus& corpus, size_t shards)
      : workers_(corpus.workers),
        block_tokens_(corpus.block_tokens),
        index_(ContentKeys::OfProcess(), shards) {}

  const uint32_t workers_;
  const int64_t block_tokens_;
  PrefixIndex index_;
};

}  // namespace kvcast::bench
