// SPDX-License-Identifier: Apache-2.0
#include "src/engine/group_managers.h"

#include <algorithm>

#include "src/engine/circular_buffer_manager.h"
#include "src/engine/cross_attention_manager.h"
#include "src/engine/full_attention_manager.h"
#include "src/engine/mamba_manager.h"

namespace kvcast::engine {
namespace {

std::unique_ptr<SingleTypeManager> MakeManager(const GroupContext& context) {
  const SpecKind kind = context.spec.kind;
  if (IsFullKind(kind)) return std::make_unique<FullAttentionManager>(context);
  if (kind == SpecKind::kMamba) return std::make_unique<MambaManager>(context);
  if (kind == SpecKind::kCircularBuffer) {
    return std::make_unique<CircularBufferManager>(context);
  }
  if (!IsCacheableKind(kind)) {
    return std::make_unique<CrossAttentionManager>(context);
  }
  // Sliding windows and chunks need only the base class, which releases the blocks of skipped
  // tokens.
  return std::make_unique<SingleTypeManager>(context);
}

std::span<const BlockId> HitBlocks(const PrefixHit* hit, size_t group) {
  if (hit == nullptr || group >= hit->blocks.size()) return {};
  return hit->blocks[group];
}

// Tokens after the last multiple of this number are not cached, because no hit could end there.
int64_t CacheStep(const CacheConfig& config) {
  const bool every_token = PartialHitsEnabled(config) || config.rules < EngineRules::kMain2026May;
  return every_token ? 1 : config.scheduler_block_size;
}

}  // namespace

GroupManagers::GroupManagers(const CacheConfig& config, BlockPool& pool)
    : unitary_(config.groups.size() == 1),
      cache_step_(CacheStep(config)),
      prefilled_again_(std::max<int64_t>(0, config.mtp_lookahead_tokens - 1)) {
  for (size_t i = 0; i < config.groups.size(); ++i) {
    GroupContext context;
    context.spec = config.groups[i];
    context.group = GroupIdx(static_cast<uint32_t>(i));
    context.alignment = config.scheduler_block_size;
    context.hit_alignment = HitAlignment(config);
    context.drops = std::any_of(config.groups.begin(), config.groups.end(),
                                [](const GroupSpec& group) { return group.eagle; });
    context.lookahead = config.chain_form.lookahead;
    context.retention_interval = config.retention_interval;
    context.rules = config.rules;
    context.max_admission_blocks =
        MaxAdmissionBlocks(context.spec, config.max_model_len, config.max_in_flight_tokens);
    context.caching_lags = context.spec.eagle && prefilled_again_ > 0;
    context.shared_prefix_checkpoint = config.mamba_shared_prefix_checkpoint;
    // A new Mamba state is written completely, so its block need not be zeroed.
    context.zero_new_blocks = config.zero_new_blocks && context.spec.kind != SpecKind::kMamba;
    context.pool = &pool;
    managers_.push_back(MakeManager(context));
  }
}

int64_t GroupManagers::BlocksToAllocate(RequestSlot slot, const PrefixHit* hit,
                                        const SlotDemand& demand) const {
  int64_t blocks = 0;
  for (size_t i = 0; i < managers_.size(); ++i) {
    blocks += managers_[i]->BlocksToAllocate(slot, HitBlocks(hit, i), demand);
  }
  return blocks;
}

void GroupManagers::AddComputed(RequestSlot slot, const PrefixHit* hit, const SlotDemand& demand) {
  // Every group must hold its hit before any group takes new blocks. Otherwise the allocation of
  // one group could evict blocks that another group is about to reuse.
  for (size_t i = 0; i < managers_.size(); ++i) {
    managers_[i]->AddHit(slot, HitBlocks(hit, i), demand);
  }
  if (demand.total_computed == demand.local_computed) return;
  for (const auto& manager : managers_) manager->AllocateExternal(slot, demand);
}

void GroupManagers::AllocateNew(RequestSlot slot, const SlotDemand& demand,
                                std::vector<std::vector<BlockId>>& added) {
  for (size_t i = 0; i < managers_.size(); ++i) {
    managers_[i]->AllocateNew(slot, demand, added[i]);
  }
}

int64_t GroupManagers::CacheableTokens(const SingleTypeManager& manager,
                                       int64_t computed_tokens) const {
  const int64_t final_tokens = std::max<int64_t>(0, computed_tokens - prefilled_again_);
  if (unitary_) return final_tokens;
  const int64_t aligned = computed_tokens / cache_step_ * cache_step_;
  if (!manager.spec().eagle || aligned == 0) return aligned;
  // EAGLE needs one block after a boundary.
  const int64_t final_aligned = final_tokens / cache_step_ * cache_step_;
  return std::min(final_tokens, final_aligned + manager.spec().block_size);
}

void GroupManagers::CacheBlocks(RequestSlot slot, const CacheRequest& request,
                                int64_t computed_tokens) {
  for (const auto& manager : managers_) {
    if (!manager->spec().prefix_cacheable) continue;
    manager->CacheBlocks(slot, request, CacheableTokens(*manager, computed_tokens));
  }
}

void GroupManagers::RemoveSkipped(RequestSlot slot, int64_t processed_tokens,
                                  int64_t prompt_tokens) {
  for (const auto& manager : managers_) {
    manager->RemoveSkipped(slot, processed_tokens, prompt_tokens);
  }
}

void GroupManagers::Free(RequestSlot slot, int64_t kept_tokens) {
  for (const auto& manager : managers_) manager->Free(slot, kept_tokens);
}

void GroupManagers::BeginStep() {
  for (const auto& manager : managers_) manager->BeginStep();
}

void GroupManagers::TakeCopies(std::vector<BlockCopy>& copies) {
  for (const auto& manager : managers_) manager->TakeCopies(copies);
}

void GroupManagers::TakeBlocksToZero(std::vector<BlockId>& blocks) {
  for (const auto& manager : managers_) manager->TakeBlocksToZero(blocks);
}

}  // namespace kvcast::engine
