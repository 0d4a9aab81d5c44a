// The records of a corpus as the event batches that the engines would publish. The sequence hashes
// of the corpus are the engines' block hashes.
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

// The batch of a record that stores or removes.
EventBatch BatchOf(const CorpusRecord& record, int64_t block_tokens);
// The batches of the records, without the queries.
std::vector<WorkerBatch> BatchesOf(std::span<const CorpusRecord> records, int64_t block_tokens);
// Replaces `chain` by the hash chain of the record's blocks.
template <typename Hash>  // BlockHash, or uint64_t
void MakeChain(const CorpusRecord& record, std::vector<Hash>& chain) {
  chain.clear();
  chain.reserve(record.blocks.size());
  for (const CorpusBlock& block : record.blocks) chain.emplace_back(block.sequence);
}

// The blocks that each worker holds after the last record, by worker. The block that the worker
// stored last is first, so a block comes after all blocks that follow it.
std::vector<std::vector<uint64_t>> HeldBlocks(const Corpus& corpus);
// Batches of 32 removes that empty all workers. The workers take turns, and each removes its blocks
// in the order of `held`. `blocks`: the batches end as soon as they remove this number of blocks.
std::vector<WorkerBatch> EmptyingBatches(const std::vector<std::vector<uint64_t>>& held,
                                         uint64_t blocks);
// Number of blocks that the batches store and remove.
uint64_t BlocksIn(std::span<const WorkerBatch> batches);

}  // namespace kvcast::bench
