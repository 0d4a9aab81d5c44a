// SPDX-License-Identifier: Apache-2.0
#include "src/engine/single_type_manager.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/spec/retention.h"

namespace kvcast::engine {

SingleTypeManager::RequestBlocks& SingleTypeManager::blocks(RequestSlot slot) {
  if (slot.value >= requests_.size()) requests_.resize(slot.value + size_t{1});
  return requests_[slot.value];
}

const SingleTypeManager::RequestBlocks* SingleTypeManager::find_blocks(RequestSlot slot) const {
  return slot.value < requests_.size() ? &requests_[slot.value] : nullptr;
}

std::span<const BlockId> SingleTypeManager::table(RequestSlot slot) const {
  const RequestBlocks* found = find_blocks(slot);
  if (found == nullptr) return {};
  return found->table;
}

int64_t SingleTypeManager::CountFreeCandidates(std::span<const BlockId> blocks) const {
  return std::count_if(blocks.begin(), blocks.end(),
                       [this](BlockId block) { return pool().IsFreeCandidate(block); });
}

bool SingleTypeManager::EndsInsideBlock(std::span<const BlockId> hits,
                                        const SlotDemand& demand) const {
  return !hits.empty() && demand.local_computed % block_size() != 0;
}

int64_t SingleTypeManager::BlocksToAllocate(RequestSlot slot, std::span<const BlockId> hits,
                                            const SlotDemand& demand) const {
  int64_t need = CeilDiv(demand.tokens, block_size());
  if (demand.apply_admission_cap && context_.max_admission_blocks) {
    need = std::min(need, *context_.max_admission_blocks);
  }
  const RequestBlocks* request = find_blocks(slot);
  const auto held_blocks = static_cast<int64_t>(request == nullptr ? 0 : request->table.size());
  if (request != nullptr && request->running) return std::max<int64_t>(need - held_blocks, 0);

  const int64_t skipped = SkippedTokens(spec(), demand.total_computed) / block_size();
  const int64_t present = static_cast<int64_t>(hits.size()) + held_blocks;
  const int64_t added = std::max<int64_t>(need - std::max(skipped, present), 0);
  const auto unread = static_cast<size_t>(std::max<int64_t>(skipped - held_blocks, 0));
  const auto used_hits = hits.subspan(std::min(unread, hits.size()));
  const int64_t copy = EndsInsideBlock(hits, demand) ? 1 : 0;
  return added + copy + CountFreeCandidates(used_hits);
}

void SingleTypeManager::AddHit(RequestSlot slot, std::span<const BlockId> hits,
                               const SlotDemand& demand) {
  RequestBlocks& request = blocks(slot);
  KV_CHECK(request.table.empty() && !request.running);
  request.running = true;
  const auto skipped =
      static_cast<size_t>(SkippedTokens(spec(), demand.total_computed) / block_size());
  const auto used = hits.subspan(std::min(skipped, hits.size()));
  pool().Adopt(used);
  request.table.assign(skipped, kNullBlock);
  request.table.insert(request.table.end(), used.begin(), used.end());
  request.num_cached = static_cast<int64_t>(request.table.size());
  if (EndsInsideBlock(used, demand)) {
    // The request fills its own copy of the block. The copy is cached as a full block later.
    const int64_t index = demand.local_computed / block_size();
    request.shared_tail = SharedTail{index, used.back()};
    request.num_cached = index;
  }
}

void SingleTypeManager::AllocateExternal(RequestSlot slot, const SlotDemand& demand) {
  const int64_t read_tokens = demand.total_computed - SkippedTokens(spec(), demand.total_computed);
  const int64_t external = demand.total_computed - demand.local_computed;
  if (std::min(read_tokens, external) <= 0) return;
  GrowTable(blocks(slot), CeilDiv(demand.total_computed, block_size()), nullptr);
}

void SingleTypeManager::AllocateNew(RequestSlot slot, const SlotDemand& demand,
                                    std::vector<BlockId>& added) {
  RequestBlocks& request = blocks(slot);
  if (request.shared_tail) {
    const size_t copy = added.size();
    pool().Allocate(1, added);
    RedirectSharedTail(request, *request.shared_tail, added[copy]);
    request.shared_tail.reset();
  }
  GrowTable(request, CeilDiv(demand.tokens, block_size()), &added);
}

void SingleTypeManager::GrowTable(RequestBlocks& blocks, int64_t count,
                                  std::vector<BlockId>* added) {
  const size_t before = blocks.table.size();
  const int64_t missing = count - static_cast<int64_t>(before);
  if (missing <= 0) return;
  pool().Allocate(missing, blocks.table);
  const auto taken = blocks.table.begin() + static_cast<ptrdiff_t>(before);
  if (context_.zero_new_blocks) to_zero_.insert(to_zero_.end(), taken, blocks.table.end());
  if (added != nullptr) added->insert(added->end(), taken, blocks.table.end());
}

void SingleTypeManager::RedirectSharedTail(RequestBlocks& blocks, const SharedTail& tail,
                                           BlockId copy) {
  KV_CHECK(blocks.table[static_cast<size_t>(tail.index)] == tail.block);
  blocks.table[static_cast<size_t>(tail.index)] = copy;
  // Until the copy has run, the source keeps the reference of the hit, and the target has a second
  // reference.
  pool().Touch({&copy, 1});
  QueueCopy({tail.block, copy});
}

void SingleTypeManager::TakeCopies(std::vector<BlockCopy>& copies) {
  copies.insert(copies.end(), copies_.begin(), copies_.end());
  copies_.clear();
}

void SingleTypeManager::TakeBlocksToZero(std::vector<BlockId>& blocks) {
  blocks.insert(blocks.end(), to_zero_.begin(), to_zero_.end());
  to_zero_.clear();
}

// Sets boundaries_ to the prefix lengths at which a later request can hit. The later request has
// the same prompt, or the same first part of the prompt.
void SingleTypeManager::FillBoundaries(const CacheRequest& request) {
  boundaries_.clear();
  const int64_t grid = context_.alignment;
  const auto floor = [grid](int64_t tokens) { return tokens / grid * grid; };
  if (context_.rules >= EngineRules::kV032 && context_.drops) {
    // A group drops a block for its draft head, so the later request loses one unit of the grid.
    boundaries_ = {std::max<int64_t>(floor(request.prompt_tokens - 1) - grid, 0),
                   std::max<int64_t>(floor(request.prompt_tokens) - grid, 0)};
    if (boundaries_[0] == boundaries_[1]) boundaries_.pop_back();
  } else {
    boundaries_.push_back(request.prompt_tokens - 1);
  }
  if (request.shared_prefix_boundary == 0) return;
  boundaries_.push_back(request.shared_prefix_boundary);
  if (context_.rules >= EngineRules::kV033 && spec().eagle) {
    boundaries_.push_back(request.shared_prefix_boundary - block_size());
  }
}

void SingleTypeManager::CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t tokens) {
  RequestBlocks& request_blocks = blocks(slot);
  // With lookahead, the hash of a block exists only when the tokens after the block are known.
  const int64_t hashed = std::ssize(request.chain) * pool().hash_block_size();
  const int64_t full = std::min(std::min(tokens, hashed) / block_size(),
                                static_cast<int64_t>(request_blocks.table.size()));
  if (request_blocks.num_cached >= full) return;
  FillBoundaries(request);
  const bool finer = context_.rules >= EngineRules::kV032;
  const internal::RetentionRule rule{spec(), finer ? context_.hit_alignment : context_.alignment,
                                     context_.retention_interval};
  const bool sparse =
      context_.rules >= EngineRules::kMain2026May &&
      internal::FillRetentionMask(rule, request_blocks.num_cached, full, boundaries_, keep_);
  pool().CacheFullBlocks({request, group(), block_size(), request_blocks.table,
                          request_blocks.num_cached, full, sparse ? &keep_ : nullptr});
  request_blocks.num_cached = full;
}

void SingleTypeManager::RemoveSkipped(RequestSlot slot, int64_t processed_tokens,
                                      int64_t /*prompt_tokens*/) {
  RequestBlocks& request = blocks(slot);
  ReleaseRange(request, 0, SkippedTokens(spec(), processed_tokens) / block_size());
}

void SingleTypeManager::ReleaseRange(RequestBlocks& blocks, int64_t first, int64_t last) {
  released_.clear();
  last = std::min(last, static_cast<int64_t>(blocks.table.size()));
  for (int64_t i = last - 1; i >= first; --i) {
    BlockId& block = blocks.table[static_cast<size_t>(i)];
    if (block == kNullBlock) break;
    released_.push_back(block);
    block = kNullBlock;
  }
  pool().Free(released_);
}

void SingleTypeManager::ReleaseAll(RequestBlocks& blocks, int64_t first, int64_t last) {
  released_.clear();
  for (int64_t i = last - 1; i >= first; --i) {
    BlockId& block = blocks.table[static_cast<size_t>(i)];
    if (block != kNullBlock) released_.push_back(std::exchange(block, kNullBlock));
  }
  pool().Free(released_);
}

void SingleTypeManager::Free(RequestSlot slot, int64_t kept_tokens) {
  RequestBlocks& request = blocks(slot);
  released_.assign(request.table.rbegin(), request.table.rend());
  const std::span<const BlockId> all(released_);
  const int64_t tokens = std::ssize(all) * block_size();
  const auto kept = static_cast<size_t>(CeilDiv(std::min(kept_tokens, tokens), block_size()));
  pool().Free(all.first(all.size() - kept), FreeTo::kEvictFirst);
  pool().Free(all.last(kept));
  request.table.clear();
  request.num_cached = 0;
  request.running = false;
  request.shared_tail.reset();
}

}  // namespace kvcast::engine
