// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/corpus_events.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <variant>

namespace kvcast::bench {
namespace {

constexpr size_t kRemoveBatch = 32;

Event RemovedEvent(std::vector<BlockHash> hashes) {
  return BlockRemoved{.block_hashes = std::move(hashes), .medium = kMediumGpu, .group_idx = 0};
}

}  // namespace

EventBatch BatchOf(const CorpusRecord& record, int64_t block_tokens) {
  std::vector<BlockHash> hashes;
  MakeChain(record, hashes);
  EventBatch batch;
  if (record.op == CorpusOp::kRemove) {
    batch.events.push_back(RemovedEvent(std::move(hashes)));
    return batch;
  }
  BlockStored stored;
  stored.block_hashes = std::move(hashes);
  if (record.parent != 0) stored.parent_block_hash = BlockHash(record.parent);
  stored.block_size = block_tokens;
  stored.medium = kMediumGpu;
  stored.group_idx = 0;
  batch.events.emplace_back(std::move(stored));
  return batch;
}

std::vector<WorkerBatch> BatchesOf(std::span<const CorpusRecord> records, int64_t block_tokens) {
  std::vector<WorkerBatch> batches;
  for (const CorpusRecord& record : records) {
    if (record.op == CorpusOp::kQuery) continue;
    batches.push_back({WorkerId(record.worker), BatchOf(record, block_tokens)});
  }
  return batches;
}

std::vector<std::vector<uint64_t>> HeldHashes(const Corpus& corpus) {
  std::vector<std::unordered_map<uint64_t, uint64_t>> orders(corpus.workers);  // by sequence hash
  uint64_t order = 0;
  for (const CorpusRecord& record : corpus.records) {
    for (const CorpusBlock& block : record.blocks) {
      if (record.op == CorpusOp::kStore) orders[record.worker][block.sequence] = order++;
      if (record.op == CorpusOp::kRemove) orders[record.worker].erase(block.sequence);
    }
  }
  std::vector<std::vector<uint64_t>> held(corpus.workers);
  for (size_t worker = 0; worker < held.size(); ++worker) {
    const auto& order_of = orders[worker];
    for (const auto& [sequence, number] : order_of) held[worker].push_back(sequence);
    std::sort(held[worker].begin(), held[worker].end(),
              [&](uint64_t a, uint64_t b) { return order_of.at(a) > order_of.at(b); });
  }
  return held;
}

std::vector<WorkerBatch> RemoveBatches(const std::vector<std::vector<uint64_t>>& held,
                                       uint64_t min_blocks) {
  std::vector<WorkerBatch> batches;
  uint64_t removed = 0;
  bool more_blocks = true;
  for (size_t begin = 0; more_blocks; begin += kRemoveBatch) {
    more_blocks = false;
    for (size_t worker = 0; worker < held.size() && removed < min_blocks; ++worker) {
      if (held[worker].size() <= begin) continue;
      more_blocks = true;
      const size_t end = std::min(begin + kRemoveBatch, held[worker].size());
      std::vector<BlockHash> hashes(held[worker].begin() + static_cast<std::ptrdiff_t>(begin),
                                    held[worker].begin() + static_cast<std::ptrdiff_t>(end));
      removed += hashes.size();
      WorkerBatch& batch = batches.emplace_back();
      batch.worker = WorkerId(static_cast<uint32_t>(worker));
      batch.batch.events.push_back(RemovedEvent(std::move(hashes)));
    }
  }
  return batches;
}

uint64_t BlocksIn(std::span<const WorkerBatch> batches) {
  uint64_t blocks = 0;
  for (const WorkerBatch& batch : batches) {
    for (const Event& event : batch.batch.events) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) {
        blocks += stored->block_hashes.size();
      }
      if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
        blocks += removed->block_hashes.size();
      }
    }
  }
  return blocks;
}

}  // namespace kvcast::bench
