// MirrorTier: one of the two schedulers of a HostTier. It mirrors the GPU's pool (SimpleOffload).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/engine/host_tier_config.h"
#include "apps/engine/tier_copies.h"
#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/offload/offload_transfer.h"
#include "kvcast/offload/simple_offload.h"

namespace kvcast::tools {

class MirrorTier {
 public:
  static Result<std::unique_ptr<MirrorTier>> Create(const HostTierConfig& config,
                                                    CacheManager& cache,
                                                    const TierCopies::MakeMemory& make_memory);

  TierCopies& copies() { return *copies_; }

  // See HostTier.
  std::optional<int64_t> Match(const CacheRequest& request, int64_t local_tokens,
                               int64_t /*now_ms*/) {
    return offload_->Match(request, local_tokens);
  }
  Status AfterAlloc(const CacheRequest& request, int64_t external_tokens);
  void Preempt(const CacheRequest& request, int64_t computed_tokens) {
    offload_->Preempt(request, computed_tokens);
  }
  void Finish(const CacheRequest& request, int64_t computed_tokens) {
    offload_->RequestFinished(request, computed_tokens);
  }

  void BuildStep(std::span<const TierRequest> scheduled);
  void EndStep();
  void CompleteStores();
  bool CompleteLoad(const CacheRequest& request);

  bool has_pending_work() const { return offload_->has_pending_work(); }
  std::vector<Event> TakeEvents() { return offload_->TakeEvents(); }
  int64_t held_blocks() const {
    return offload_->usage().total_blocks - offload_->usage().free_blocks;
  }
  Status CheckInvariants() const { return offload_->CheckInvariants(); }

 private:
  struct Store {
    int64_t event;
    TransferJobId job;
  };
  struct Load {
    std::string request;
    TransferJobId job;
    std::optional<bool> success;  // set when the job has ended
  };

  MirrorTier(std::unique_ptr<TierCopies> copies, std::unique_ptr<SimpleOffload> offload)
      : copies_(std::move(copies)), offload_(std::move(offload)) {}

  TransferJobId Submit(CopyDirection direction, const BlockPairs& pairs);

  const std::unique_ptr<TierCopies> copies_;
  const std::unique_ptr<SimpleOffload> offload_;
  std::vector<StepRequest> scheduled_;  // scratch
  TransferStep step_;
  TransferLists lists_;
  std::vector<Store> stores_;  // stores in progress
  std::vector<Load> loads_;    // loads in progress; the loads of one step are one job
  std::vector<std::string> new_loads_;
  uint64_t next_job_ = 0;
};

}  // namespace kvcast::tools
