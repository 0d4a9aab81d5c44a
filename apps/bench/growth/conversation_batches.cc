// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/conversation_batches.h"

#include <span>
#include <utility>
#include <variant>

namespace kvcast::bench {
namespace {

constexpr auto kTokens = static_cast<uint64_t>(kBlockTokens);

BlockStored& StoredIn(WorkerBatch& batch) {
  return std::get<BlockStored>(batch.batch.events.front());
}

BlockRemoved& RemovedIn(WorkerBatch& batch) {
  return std::get<BlockRemoved>(batch.batch.events.front());
}

}  // namespace

ConversationBatches::ConversationBatches(const Conversations& content) : content_(content) {
  BlockStored stored;
  stored.token_ids.emplace();
  stored.block_size = kBlockTokens;
  stored.medium = kMediumGpu;
  stored.group_idx = 0;
  stored.kv_cache_spec_kind = "full_attention";
  stored_.batch.events.emplace_back(std::move(stored));
  BlockRemoved removed;
  removed.medium = kMediumGpu;
  removed.group_idx = 0;
  evicted_.batch.events.emplace_back(std::move(removed));
}

const WorkerBatch& ConversationBatches::StoreSystem(WorkerId worker, uint64_t system) {
  stored_.worker = worker;
  BlockStored& stored = StoredIn(stored_);
  stored.parent_block_hash.reset();
  stored.block_hashes.resize(Conversations::kSystemBlocks);
  stored.token_ids->resize(Conversations::kSystemBlocks * kTokens);
  for (uint64_t i = 0; i < Conversations::kSystemBlocks; ++i) {
    SetBlock(i, Conversations::SystemHash(system, i));
  }
  return stored_;
}

const WorkerBatch& ConversationBatches::Store(uint64_t wave, uint64_t step) {
  const uint64_t turn = step / content_.conversations();
  const uint64_t conversation = wave * content_.conversations() + step % content_.conversations();
  const bool is_first = content_.PlaceOf(conversation) < Conversations::kHolders;
  return StoreBlocks(content_.WorkerOf(conversation), BlocksOf(conversation, turn, is_first));
}

const WorkerBatch& ConversationBatches::Evict(uint64_t wave, uint64_t step) {
  const uint64_t turn = Conversations::kTurns - 1 - step / content_.conversations();
  const uint64_t conversation = wave * content_.conversations() + step % content_.conversations();
  const bool is_last =
      content_.PlaceOf(conversation) >= Conversations::kPerProject - Conversations::kHolders;
  const Blocks blocks = BlocksOf(conversation, turn, is_last);
  evicted_.worker = content_.WorkerOf(conversation);
  std::vector<BlockHash>& hashes = RemovedIn(evicted_).block_hashes;
  hashes.clear();
  for (uint64_t i = blocks.end; i-- > blocks.begin;) {
    hashes.emplace_back(content_.HashOf(conversation, i));
  }
  return evicted_;
}

const WorkerBatch& ConversationBatches::StoreCopy(WorkerId worker, uint64_t conversation) {
  return StoreBlocks(worker,
                     {conversation, Conversations::kSystemBlocks, Conversations::kPromptBlocks});
}

ConversationBatches::Blocks ConversationBatches::BlocksOf(uint64_t conversation, uint64_t turn,
                                                          bool with_project) {
  const uint64_t begin = Conversations::kSharedBlocks + turn * Conversations::kTurnBlocks;
  return {.conversation = conversation,
          .begin = turn == 0 && with_project ? Conversations::kSystemBlocks : begin,
          .end = begin + Conversations::kTurnBlocks};
}

const WorkerBatch& ConversationBatches::StoreBlocks(WorkerId worker, const Blocks& blocks) {
  stored_.worker = worker;
  BlockStored& stored = StoredIn(stored_);
  stored.parent_block_hash = BlockHash(content_.HashOf(blocks.conversation, blocks.begin - 1));
  stored.block_hashes.resize(blocks.end - blocks.begin);
  stored.token_ids->resize((blocks.end - blocks.begin) * kTokens);
  for (uint64_t i = blocks.begin; i < blocks.end; ++i) {
    SetBlock(i - blocks.begin, content_.HashOf(blocks.conversation, i));
  }
  return stored_;
}

void ConversationBatches::SetBlock(uint64_t at, uint64_t hash) {
  BlockStored& stored = StoredIn(stored_);
  stored.block_hashes[at] = BlockHash(hash);
  // The token ids depend only on the hash. One word gives four token ids.
  const auto tokens = std::span(*stored.token_ids).subspan(at * kTokens, kTokens);
  uint64_t word = 0;
  for (uint64_t i = 0; i < kTokens; ++i) {
    word = i % 4 == 0 ? Mix64(hash + i) : word >> 16;
    tokens[i] = static_cast<TokenId>(word & 0xffff);
  }
}

}  // namespace kvcast::bench
