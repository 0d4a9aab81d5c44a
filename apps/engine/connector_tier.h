// ConnectorTier: one of the two schedulers of a HostTier. It holds chunks under keys
// (OffloadScheduler), like vLLM's offloading connector. The tier never calls TakeLateLoads, because
// the engine chooses when a load ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apps/engine/host_tier_config.h"
#include "apps/engine/tier_copies.h"
#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/offload/offload_scheduler.h"
#include "kvcast/offload/offload_transfer.h"

namespace kvcast::tools {

class ConnectorTier {
 public:
  static Result<std::unique_ptr<ConnectorTier>> Create(const HostTierConfig& config,
                                                       CacheManager& cache,
                                                       const TierCopies::MakeMemory& make_memory);

  TierCopies& copies() { return *copies_; }

  // See HostTier.
  std::optional<int64_t> Match(const CacheRequest& request, int64_t local_tokens, int64_t now_ms);
  Status AfterAlloc(const CacheRequest& request, int64_t external_tokens);
  void Preempt(const CacheRequest& request, int64_t computed_tokens);
  void Finish(const CacheRequest& request, int64_t computed_tokens);

  void BuildStep(std::span<const TierRequest> scheduled);
  void EndStep() {}  // the deferred stores start with the next BuildStep
  void CompleteStores();
  bool CompleteLoad(const CacheRequest& request);

  bool has_pending_work() const { return scheduler_->has_pending_work() || finished_; }
  std::vector<Event> TakeEvents() { return scheduler_->TakeEvents(); }
  int64_t held_blocks() const;
  Status CheckInvariants() const { return scheduler_->manager().CheckInvariants(); }

 private:
  struct Known {
    OffloadRequestId id;
    bool starts = true;                // the next step sends the whole block table to the scheduler
    std::vector<size_t> blocks;        // by group: number of leading blocks that the scheduler has
    std::optional<OffloadJobId> load;  // the load in progress
  };

  ConnectorTier(CacheManager& cache, std::unique_ptr<TierCopies> copies,
                std::unique_ptr<OffloadScheduler> scheduler)
      : cache_(cache), copies_(std::move(copies)), scheduler_(std::move(scheduler)) {}

  Known& Of(const CacheRequest& request);
  std::vector<std::vector<BlockId>> NewBlocks(const CacheRequest& request, Known& known) const;
  void Submit(const OffloadJob& job) { copies_->Submit(ToTransferJob(job, *scheduler_, lists_)); }
  void StartStores(const OffloadPlan& plan);
  void EndFlushed(const OffloadPlan& plan);

  CacheManager& cache_;
  const std::unique_ptr<TierCopies> copies_;
  const std::unique_ptr<OffloadScheduler> scheduler_;
  std::unordered_map<std::string, Known> known_;
  std::unordered_map<OffloadRequestId, std::string> loading_;  // loads since the previous BuildStep
  std::vector<OffloadRequestId> preempted_;                    // since the previous BuildStep
  bool finished_ = false;             // true: a request finished since the previous BuildStep
  std::vector<OffloadJob> deferred_;  // stores that start with the next BuildStep
  // The started stores. nullopt: the success of the store is not known yet.
  std::map<OffloadJobId, std::optional<bool>> stores_;
  TransferLists lists_;
  OffloadRequestId next_id_;
};

}  // namespace kvcast::tools
