// SPDX-License-Identifier: Apache-2.0
#include "src/engine/mamba_manager.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::engine {

MambaManager::RunningState& MambaManager::state(RequestSlot slot) {
  if (slot.value >= states_.size()) states_.resize(slot.value + size_t{1});
  return states_[slot.value];
}

const MambaManager::RunningState* MambaManager::find_state(RequestSlot slot) const {
  return slot.value < states_.size() ? &states_[slot.value] : nullptr;
}

SlotDemand MambaManager::WithSpeculativeBlocks(SlotDemand demand) const {
  demand.tokens += block_size() * spec().speculative_blocks;
  return demand;
}

int64_t MambaManager::RequiredBlocks(const SlotDemand& demand) const {
  // The draft tokens do not count: draft models have no recurrent layers, and draft tokens would
  // break the alignment.
  return CeilDiv(demand.main_tokens, block_size()) + spec().speculative_blocks;
}

bool MambaManager::WasCachedThisStep(BlockId block) const {
  const CachedBlockMap& cached = pool().cached();
  if (block == kNullBlock || !cached.HasKeys(block)) return false;
  return std::find(cached_this_step_.begin(), cached_this_step_.end(), cached.PrimaryKey(block)) !=
         cached_this_step_.end();
}

int64_t MambaManager::BlocksToAllocate(RequestSlot slot, std::span<const BlockId> hits,
                                       const SlotDemand& demand) const {
  if (!hits.empty() && WasCachedThisStep(hits.back())) return pool().num_blocks() + 1;
  if (!aligned()) {
    return SingleTypeManager::BlocksToAllocate(slot, hits, WithSpeculativeBlocks(demand));
  }
  const RequestBlocks* request = find_blocks(slot);
  const auto held_blocks = static_cast<int64_t>(request == nullptr ? 0 : request->table.size());
  const bool copies =
      EndsInsideBlock(hits, demand) || (request != nullptr && request->shared_tail.has_value());
  int64_t added = RequiredBlocks(demand) - static_cast<int64_t>(hits.size()) - held_blocks;
  if (copies) added = std::max<int64_t>(added, 0) + 1;
  if (added > 0) {
    const int64_t missing = added;
    const RunningState* running = find_state(slot);
    added = 1 + (copies ? 1 : 0) + (CheckpointOf(slot, demand) ? 1 : 0);
    if (running == nullptr || !running->allocated) added += spec().speculative_blocks;
    // A loaded state has its own block if the step ends in a later block.
    const int64_t loaded = CeilDiv(demand.total_computed, block_size());
    const bool loads = held_blocks == 0 && demand.total_computed > demand.local_computed;
    if (loads && !demand.apply_admission_cap && loaded > static_cast<int64_t>(hits.size()) &&
        CeilDiv(demand.main_tokens, block_size()) > loaded) {
      ++added;
    }
    if (context().rules >= EngineRules::kV033) added = std::min(added, missing);
  }
  return std::max<int64_t>(added, 0) + CountFreeCandidates(hits);
}

void MambaManager::AllocateNew(RequestSlot slot, const SlotDemand& demand,
                               std::vector<BlockId>& added) {
  if (!aligned()) {
    SingleTypeManager::AllocateNew(slot, WithSpeculativeBlocks(demand), added);
    return;
  }
  const RequestBlocks& request = blocks(slot);
  const int64_t required = RequiredBlocks(demand);
  state(slot).checkpoint = CheckpointOf(slot, demand);
  if (required > static_cast<int64_t>(request.table.size()) || request.shared_tail) {
    AllocateAligned(slot, required, state(slot).checkpoint.has_value(), added);
  }
  state(slot).allocated = true;
}

// A column is an index into the block table. The chunk starts from the state in one column and ends
// in a later column. The chunk may keep one more state if these columns are at least two apart.
std::optional<MambaManager::Checkpoint> MambaManager::CheckpointOf(RequestSlot slot,
                                                                   const SlotDemand& demand) const {
  if (spec().prefill_checkpoint_blocks == 0 || spec().prefill_checkpoint_alignment == 0) {
    return std::nullopt;
  }
  const int64_t begin = demand.total_computed;
  const int64_t end = demand.main_tokens;
  if (context().retention_interval == int64_t{0} && end < demand.prefill_tokens) {
    return std::nullopt;
  }
  const int64_t hash_block_size = pool().hash_block_size();
  const int64_t tokens = CheckpointBefore(end, context().hit_alignment);
  const int64_t column = CeilDiv(end, block_size()) - 2;
  const bool columns_apart = column > CeilDiv(begin, block_size()) - 1;
  const bool aligned =
      begin % hash_block_size == 0 && (tokens - begin) % spec().prefill_checkpoint_alignment == 0;
  if (!columns_apart || !aligned || begin + hash_block_size > tokens || tokens >= end)
    return std::nullopt;
  const RequestBlocks* request = find_blocks(slot);
  const auto held_blocks = static_cast<int64_t>(request == nullptr ? 0 : request->table.size());
  // The blocks for drafts at the end of the table hold no state that is still needed.
  const RunningState* running = find_state(slot);
  const bool allocated = running != nullptr && running->allocated;
  if (column < held_blocks - (allocated ? spec().speculative_blocks : 0)) return std::nullopt;
  return Checkpoint{column, tokens};
}

void MambaManager::AllocateAligned(RequestSlot slot, int64_t required, bool checkpoint,
                                   std::vector<BlockId>& added) {
  RequestBlocks& request = blocks(slot);
  RunningState& running = state(slot);
  const size_t old_size = request.table.size();
  const auto old_count = static_cast<int64_t>(old_size);
  if (running.allocated) {
    running.last_state_column = old_count - 1 - spec().speculative_blocks;
  } else if (old_count > 0) {
    running.last_state_column = old_count - 1;  // the state that the cache hit restored
  }
  const int64_t skipped = required - spec().speculative_blocks - 1 - (checkpoint ? 1 : 0);
  if (old_count < skipped) request.table.resize(static_cast<size_t>(skipped), kNullBlock);
  if (running.allocated) MoveSpeculativeBlocks(request, old_size, skipped);

  if (request.shared_tail) {
    std::vector<BlockId> copy;
    pool().Allocate(1, copy);
    if (!running.allocated) added.push_back(copy[0]);
    CopySharedTail(request, running.allocated, copy[0]);
  }
  GrowTable(request, required, nullptr);
  added.insert(added.end(), request.table.begin() + static_cast<ptrdiff_t>(old_size),
               request.table.end());
}

void MambaManager::MoveSpeculativeBlocks(RequestBlocks& request, size_t old_size, int64_t skipped) {
  const auto speculative = static_cast<size_t>(spec().speculative_blocks);
  const size_t first = old_size - std::min(old_size, speculative);
  for (size_t i = first; i < old_size && static_cast<int64_t>(i) < skipped; ++i) {
    request.table.push_back(request.table[i]);
    request.table[i] = kNullBlock;
  }
}

void MambaManager::CopySharedTail(RequestBlocks& request, bool running, BlockId copy) {
  const SharedTail tail = *request.shared_tail;
  request.shared_tail.reset();
  if (!running) {
    RedirectSharedTail(request, tail, copy);
    return;
  }
  // The table of a running request only grows. The request therefore keeps its block, and the cache
  // entry moves to the copy. One reference to each of the two blocks is kept until the copy has
  // run.
  KV_CHECK(request.table[static_cast<size_t>(tail.index)] == tail.block);
  pool().MoveKeys(tail.block, copy);
  pool().Touch({&tail.block, 1});
  QueueCopy({tail.block, copy});
  if (pool().cached().HasKeys(copy)) {
    cached_this_step_.push_back(pool().cached().PrimaryKey(copy));
  }
}

void MambaManager::CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t tokens) {
  const auto before = static_cast<size_t>(blocks(slot).num_cached);
  SingleTypeManager::CacheBlocks(slot, request, tokens);
  const auto after = static_cast<size_t>(blocks(slot).num_cached);
  for (size_t i = before; i < after; ++i) {
    const BlockId block = blocks(slot).table[i];
    if (block == kNullBlock || !pool().cached().HasKeys(block)) continue;
    cached_this_step_.push_back(pool().cached().PrimaryKey(block));
  }
  if (!aligned()) return;
  CacheCheckpoint(slot, request);
  CachePartialTail(slot, request, tokens);
}

// The block of a chunk's checkpoint holds the state of Checkpoint::tokens tokens. The block may
// have been cached as a full block, under the key of another prefix.
void MambaManager::CacheCheckpoint(RequestSlot slot, const CacheRequest& request) {
  const auto checkpoint = std::exchange(state(slot).checkpoint, std::nullopt);
  if (!checkpoint) return;
  const BlockId block = blocks(slot).table[static_cast<size_t>(checkpoint->column)];
  const CachedBlockMap& cached = pool().cached();
  if (cached.HasKeys(block) && cached.PrimaryCoveredTokens(block) == checkpoint->tokens) return;
  const auto interval = context().retention_interval;
  const bool retained =
      !interval || (*interval > 0 && checkpoint->tokens % *interval == 0) ||
      checkpoint->tokens == CheckpointBefore(request.prompt_tokens, pool().hash_block_size()) ||
      checkpoint->tokens == request.shared_prefix_boundary;
  // The key of the full block may belong to a longer prefix than the state.
  pool().Evict({&block, 1});
  if (!retained) return;
  const auto key = pool().CachePartialBlock({request, group(), block, checkpoint->tokens});
  if (key) cached_this_step_.push_back(*key);
}

int64_t MambaManager::CheckpointBefore(int64_t tokens, int64_t hash_block_size) const {
  if (context().rules < EngineRules::kV032) return tokens / hash_block_size * hash_block_size;
  if (context().drops)
    return std::max<int64_t>(0, tokens / hash_block_size * hash_block_size - hash_block_size);
  const int64_t tokens_after = std::max<int64_t>(1, context().lookahead);
  return std::max<int64_t>(0, tokens - tokens_after) / hash_block_size * hash_block_size;
}

void MambaManager::CachePartialTail(RequestSlot slot, const CacheRequest& request, int64_t tokens) {
  const int64_t hash_block_size = pool().hash_block_size();
  if (context().rules < EngineRules::kMain2026August || context().caching_lags) return;
  if (block_size() == hash_block_size || tokens <= 0 || tokens % hash_block_size != 0) return;
  const bool shared_boundary =
      context().shared_prefix_checkpoint && tokens == request.shared_prefix_boundary;
  if (tokens != CheckpointBefore(request.prompt_tokens, hash_block_size) && !shared_boundary)
    return;
  const bool inside = tokens % block_size() != 0;
  if (!inside && context().rules < EngineRules::kV032) return;
  RequestBlocks& request_blocks = blocks(slot);
  const int64_t index = CeilDiv(tokens, block_size()) - 1;
  if (index >= static_cast<int64_t>(request_blocks.table.size())) return;
  const BlockId block = request_blocks.table[static_cast<size_t>(index)];
  const CachedBlockMap& cached = pool().cached();
  if (!inside && cached.HasKeys(block) && cached.PrimaryCoveredTokens(block) == tokens) return;
  const auto key = pool().CachePartialBlock({request, group(), block, tokens});
  if (!key) return;
  cached_this_step_.push_back(*key);
  if (!inside) return;
  // The next step overwrites this state, so the cache entry must move to a copy before that step.
  request_blocks.shared_tail = SharedTail{index, block};
  request_blocks.num_cached = index;
}

void MambaManager::RemoveSkipped(RequestSlot slot, int64_t processed_tokens,
                                 int64_t prompt_tokens) {
  RequestBlocks& request_blocks = blocks(slot);
  if (aligned() && context().rules >= EngineRules::kV033) {
    // While earlier steps are in flight, the table holds several states with null blocks between
    // them.
    RunningState& running = state(slot);
    const int64_t end = std::min(SkippedTokens(spec(), processed_tokens) / block_size(),
                                 static_cast<int64_t>(request_blocks.table.size()));
    ReleaseAll(request_blocks, running.retired, end);
    running.retired = std::max(running.retired, end);
  } else {
    SingleTypeManager::RemoveSkipped(slot, processed_tokens, prompt_tokens);
  }
  if (!aligned()) return;
  // The request released the block, and the cache entry stays with the block. No step overwrites
  // the block, so no copy is needed.
  if (request_blocks.shared_tail &&
      request_blocks.table[static_cast<size_t>(request_blocks.shared_tail->index)] == kNullBlock) {
    request_blocks.shared_tail.reset();
  }
  const auto last = state(slot).last_state_column;
  if (!last || *last >= CeilDiv(processed_tokens, block_size()) - 1) return;
  ReleaseRange(request_blocks, *last, *last + 1);
}

void MambaManager::Free(RequestSlot slot, int64_t kept_tokens) {
  state(slot) = {};
  SingleTypeManager::Free(slot, kept_tokens);
}

}  // namespace kvcast::engine
