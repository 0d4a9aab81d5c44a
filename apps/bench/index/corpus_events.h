// Converts the records of a corpus to the event batches that engines would publish. The sequence
// hashes of the corpus are the engines' block hashes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/bench/index/corpus.h"
#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"

namespace kvcast::bench {

// One batch, and the worker that publishes it.
struct WorkerBatch {
  WorkerId worker;
  EventBatch batch;
};

// Returns the batch of a store record or a remove record.
EventBatch BatchOf(const CorpusRecord& record, int64_t block_tokens);
// Returns the batches of the store and remove records. Queries are left out.
std::vector<WorkerBatch> BatchesOf(std::span<const CorpusRecord> records, int64_t block_tokens);
// Replaces `chain` by the hash chain of the record's blocks.
template <typename Hash>  // BlockHash, or uint64_t
void MakeChain(const CorpusRecord& record, std::vector<Hash>& chain) {
  chain.clear();
  chain.reserve(record.blocks.size());
  for (const CorpusBlock& block : record.blocks) chain.emplace_back(block.sequence);
}

// Returns the sequence hashes of the blocks that each worker holds after the last record, by
// worker. The block that the worker stored last comes first, so the last block of a prompt comes
// before its first block.
std::vector<std::vector<uint64_t>> HeldHashes(const Corpus& corpus);
// Returns batches that remove at least `min_blocks` blocks of `held`, or all blocks of `held` if
// there are fewer. `held`: see HeldHashes.
// A batch removes up to 32 blocks of one worker, in the order of `held`. The workers take turns.
std::vector<WorkerBatch> RemoveBatches(const std::vector<std::vector<uint64_t>>& held,
                                       uint64_t min_blocks);
// Number of block hashes in the store events and the remove events of the batches.
uint64_t BlocksIn(std::span<const WorkerBatch> batches);

}  // namespace kvcast::bench
