// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/connector_tier.h"

#include <algorithm>

#include "src/base/check.h"

namespace kvcast::tools {

ConnectorTier::Known& ConnectorTier::Of(const CacheRequest& request) {
  const auto [it, is_new] = known_.try_emplace(request.id);
  if (is_new) {
    it->second.id = next_id_;
    it->second.blocks.resize(cache_.config().groups.size());
    ++next_id_.value;
    KV_CHECK(scheduler_->AddRequest(it->second.id, request).ok());
  }
  return it->second;
}

std::optional<int64_t> ConnectorTier::Match(const CacheRequest& request, int64_t local_tokens,
                                            int64_t now_ms) {
  return scheduler_->MatchedTokens(Of(request).id, local_tokens, now_ms).tokens;
}

// Returns the blocks of the request's table that the scheduler has not yet received.
std::vector<std::vector<BlockId>> ConnectorTier::NewBlocks(const CacheRequest& request,
                                                           Known& known) const {
  std::vector<std::vector<BlockId>> blocks;
  for (uint32_t g = 0; g < known.blocks.size(); ++g) {
    const auto table = cache_.BlockTable(request, GroupIdx(g));
    const auto added = table.subspan(std::min(known.blocks[g], table.size()));
    blocks.emplace_back(added.begin(), added.end());
    known.blocks[g] = table.size();
  }
  return blocks;
}

Status ConnectorTier::AfterAlloc(const CacheRequest& request, int64_t external_tokens) {
  Known& known = Of(request);
  known.starts = true;
  std::ranges::fill(known.blocks, 0);
  if (external_tokens == 0) return Status();
  const Status status =
      scheduler_->UpdateAfterAlloc(known.id, external_tokens, NewBlocks(request, known));
  // In the first step of a request, the scheduler receives the request's whole table again.
  std::ranges::fill(known.blocks, 0);
  if (status.ok()) loading_.emplace(known.id, request.id);
  return status;
}

void ConnectorTier::Preempt(const CacheRequest& request, int64_t /*computed_tokens*/) {
  preempted_.push_back(Of(request).id);
}

void ConnectorTier::Finish(const CacheRequest& request, int64_t computed_tokens) {
  const OffloadRequestId id = Of(request).id;
  KV_CHECK(!scheduler_->RequestFinished(id, computed_tokens, /*aborted=*/false));
  finished_ = true;
  known_.erase(request.id);
}

void ConnectorTier::StartStores(const OffloadPlan& plan) {
  for (const OffloadJob& job : plan.stores) {
    if (!std::ranges::binary_search(plan.flush, job.id)) {
      deferred_.push_back(job);
      continue;
    }
    Submit(job);
    stores_.emplace(job.id, std::nullopt);
  }
}

// Ends the stores whose GPU blocks the step gives to other requests.
void ConnectorTier::EndFlushed(const OffloadPlan& plan) {
  for (const OffloadJobId job : plan.flush) {
    std::optional<bool>& success = stores_.at(job);
    if (!success) success = copies_->Finish(TransferIdOf(job));
  }
}

void ConnectorTier::BuildStep(std::span<const TierRequest> scheduled) {
  for (const OffloadJob& job : std::exchange(deferred_, {})) {
    Submit(job);
    stores_.emplace(job.id, std::nullopt);
  }
  std::vector<std::vector<std::vector<BlockId>>> new_blocks;
  for (const TierRequest& entry : scheduled) {
    new_blocks.push_back(NewBlocks(*entry.request, Of(*entry.request)));
  }
  std::vector<OffloadStep::Scheduled> step;
  for (size_t i = 0; i < scheduled.size(); ++i) {
    const TierRequest& entry = scheduled[i];
    Known& known = Of(*entry.request);
    step.push_back({known.id, entry.computed_tokens, entry.scheduled_tokens,
                    std::exchange(known.starts, false), new_blocks[i]});
  }
  const OffloadPlan& plan = scheduler_->BuildStep({step, preempted_, {}});
  preempted_.clear();
  finished_ = false;
  StartStores(plan);
  EndFlushed(plan);
  for (const OffloadJob& job : plan.loads) {
    Submit(job);
    known_.at(loading_.at(job.request)).load = job.id;
  }
  loading_.clear();
}

void ConnectorTier::CompleteStores() {
  std::vector<OffloadCompletion> ended;
  for (const auto& [job, success] : stores_) {
    ended.push_back({job, 1, success ? *success : copies_->Finish(TransferIdOf(job))});
  }
  stores_.clear();
  OffloadArrivals none;
  scheduler_->OnCompletions(ended, none);
}

bool ConnectorTier::CompleteLoad(const CacheRequest& request) {
  const auto job = std::exchange(Of(request).load, std::nullopt);
  KV_CHECK(job.has_value());
  const OffloadCompletion ended = {*job, 1, copies_->Finish(TransferIdOf(*job))};
  OffloadArrivals arrivals;
  scheduler_->OnCompletions({&ended, 1}, arrivals);
  KV_CHECK(arrivals.loaded.size() + arrivals.failed.size() == 1);
  return !arrivals.loaded.empty();
}

int64_t ConnectorTier::held_blocks() const {
  int64_t held = 0;
  for (const OffloadManager::Chunk& chunk : scheduler_->manager().Inspect().chunks) {
    if (chunk.readers != 0) held += std::ssize(chunk.slots);
  }
  return held;
}

Result<std::unique_ptr<ConnectorTier>> ConnectorTier::Create(
    const HostTierConfig& config, CacheManager& cache, const TierCopies::MakeMemory& make_memory) {
  const CacheConfig& gpu = cache.config();
  const auto block_bytes = static_cast<int64_t>(config.block_bytes);
  OffloadSchedulerConfig offload;
  offload.rules = gpu.rules;
  offload.layout.groups = gpu.groups;
  offload.layout.tokens_per_hash = gpu.hash_block_size;
  offload.layout.blocks_per_chunk = config.blocks_per_chunk;
  offload.layout.retention_interval = gpu.retention_interval;
  offload.memory.capacity_bytes = config.cpu_blocks * block_bytes;
  offload.memory.chunk_bytes.assign(gpu.groups.size(), config.blocks_per_chunk * block_bytes);
  // With this page size, each chunk is a whole number of pages and occupies exactly one slot.
  offload.memory.page_bytes = sizeof(uint64_t);
  offload.hash_form = config.hash_form;
  auto scheduler = OffloadScheduler::Create(offload);
  if (!scheduler.ok()) return scheduler.status();
  const OffloadManager& manager = (*scheduler)->manager();
  if (manager.num_slots() == 0) {
    return Status(StatusCode::kInvalidArgument, "cpu_blocks: must be at least blocks_per_chunk");
  }
  const int64_t host_blocks = CeilDiv(manager.num_slots() * manager.slot_bytes(), block_bytes);
  auto copies =
      TierCopies::Create({.memory = {config.block_bytes, gpu.num_blocks, host_blocks},
                          .slot_bytes = static_cast<size_t>(manager.slot_bytes()),
                          .groups = gpu.groups.size(),
                          .blocks_per_chunk = static_cast<uint32_t>(config.blocks_per_chunk)},
                         make_memory);
  if (!copies.ok()) return copies.status();
  return std::unique_ptr<ConnectorTier>(
      new ConnectorTier(cache, std::move(copies).value(), std::move(scheduler).value()));
}

}  // namespace kvcast::tools
