// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/mirror_tier.h"

#include <algorithm>

#include "src/base/check.h"

namespace kvcast::tools {

TransferJobId MirrorTier::Submit(CopyDirection direction, const BlockPairs& pairs) {
  const TransferJobId job(next_job_++);
  copies_->Submit(ToTransferJob(job, direction, pairs, lists_));
  return job;
}

Status MirrorTier::AfterAlloc(const CacheRequest& request, int64_t external_tokens) {
  Status status = offload_->UpdateAfterAlloc(request, external_tokens);
  if (status.ok() && external_tokens > 0) new_loads_.push_back(request.id);
  return status;
}

void MirrorTier::BuildStep(std::span<const TierRequest> scheduled) {
  scheduled_.clear();
  for (const TierRequest& entry : scheduled) {
    scheduled_.push_back({entry.request, entry.computed_tokens});
  }
  offload_->BuildStep(scheduled_, step_);
  // Submit the loads before the stores, because a request waits for its load.
  if (step_.load_event) {
    const TransferJobId job = Submit(CopyDirection::kLoad, step_.load);
    for (std::string& request : new_loads_) loads_.push_back({std::move(request), job, {}});
    new_loads_.clear();
  }
}

// The stores start after the step, because a block to store may get its bytes in the step: a
// request may hit blocks that another request computes in the same step.
void MirrorTier::EndStep() {
  if (!step_.store_event) return;
  stores_.push_back({*step_.store_event, Submit(CopyDirection::kStore, step_.store)});
  step_.store_event.reset();
}

void MirrorTier::CompleteStores() {
  for (const Store& store : stores_) {
    KV_CHECK(offload_->CompleteStore(store.event, 1, copies_->Finish(store.job)).ok());
  }
  stores_.clear();
}

bool MirrorTier::CompleteLoad(const CacheRequest& request) {
  const auto it = std::ranges::find(loads_, request.id, &Load::request);
  KV_CHECK(it != loads_.end());
  const TransferJobId job = it->job;
  if (!it->success) {
    const bool success = copies_->Finish(job);
    for (Load& load : loads_) {
      if (load.job == job) load.success = success;
    }
  }
  const bool success = *it->success;
  loads_.erase(it);
  KV_CHECK(offload_->CompleteLoad(request.id, success).ok());
  return success;
}

Result<std::unique_ptr<MirrorTier>> MirrorTier::Create(const HostTierConfig& config,
                                                       CacheManager& cache,
                                                       const TierCopies::MakeMemory& make_memory) {
  SimpleOffloadConfig offload_config;
  offload_config.cache = cache.config();
  offload_config.num_cpu_blocks = config.cpu_blocks;
  offload_config.mode =
      config.kind == OffloadKind::kMirrorLazy ? StoreMode::kLazy : StoreMode::kEager;
  offload_config.events.hash_form = config.hash_form;
  auto offload = SimpleOffload::Create(offload_config, cache.gpu_blocks());
  if (!offload.ok()) return offload.status();
  // One group represents all groups: their blocks have the same size, and their ids belong to one
  // pool.
  auto copies = TierCopies::Create(
      {.memory = {config.block_bytes, cache.config().num_blocks, config.cpu_blocks},
       .slot_bytes = config.block_bytes},
      make_memory);
  if (!copies.ok()) return copies.status();
  return std::unique_ptr<MirrorTier>(
      new MirrorTier(std::move(copies).value(), std::move(offload).value()));
}

}  // namespace kvcast::tools
