// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/prompt_source.h"

#include <algorithm>
#include <utility>

#include "apps/support/steady_now.h"

namespace kvcast::tools {
namespace {

BlockStored NewStore() {
  BlockStored stored;
  stored.block_size = kFreshnessBlockSize;
  stored.group_idx = 0;
  stored.kv_cache_spec_kind = "full_attention";
  stored.medium = "GPU";
  stored.token_ids.emplace();
  return stored;
}

}  // namespace

EventBatch PromptSource::Next(uint64_t blocks) {
  EventBatch batch;
  const bool removes = full();
  for (uint64_t left = blocks; left > 0;) left -= Store(left, batch);
  if (removes) Remove(blocks, batch);
  batch.ts = SteadyNow();
  return batch;
}

uint64_t PromptSource::Store(uint64_t most, EventBatch& batch) {
  if (stored_ == prompt_.end) prompt_ = prompts_.Next();
  const uint64_t end = std::min(stored_ + most, prompt_.end);
  const uint64_t begin = stored_;
  BlockStored stored = NewStore();
  if (begin > prompt_.begin) stored.parent_block_hash = BlockHash(HashOfBlock(number_, begin - 1));
  for (; stored_ < end; ++stored_) {
    stored.block_hashes.emplace_back(HashOfBlock(number_, stored_));
    for (int64_t token = 0; token < kFreshnessBlockSize; ++token) {
      stored.token_ids->push_back(static_cast<TokenId>(tokens_() % 128000));
    }
  }
  batch.events.emplace_back(std::move(stored));
  return end - begin;
}

void PromptSource::Remove(uint64_t blocks, EventBatch& batch) {
  BlockRemoved removed;
  removed.group_idx = 0;
  removed.medium = "GPU";
  for (const uint64_t end = removed_ + blocks; removed_ < end; ++removed_) {
    removed.block_hashes.emplace_back(HashOfBlock(number_, removed_));
  }
  batch.events.emplace_back(std::move(removed));
}

}  // namespace kvcast::tools
