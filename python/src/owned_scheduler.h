// OwnedScheduler: an OffloadScheduler, and the requests that it borrows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcast/hash/block_hash.h"
#include "kvcast/offload/offload_scheduler.h"

namespace kvcast::python {

// The arguments of a step, as a Python caller gives them.
struct OwnedStep {
  struct Scheduled {
    uint64_t request = 0;
    int64_t computed_tokens = 0;
    int64_t scheduled_tokens = 0;
    bool starts = false;
    std::vector<std::vector<BlockId>> new_blocks;  // by group; empty: none
  };
  std::vector<Scheduled> scheduled;
  std::vector<OffloadRequestId> preempted;
  std::vector<OffloadStep::Tail> tails;
};

// Thread-compatible. Unlike OffloadScheduler, this class refuses unknown requests (kNotFound) and
// numbers out of range (kInvalidArgument).
class OwnedScheduler {
 public:
  // `groups`: number of groups of the engine.
  OwnedScheduler(std::unique_ptr<OffloadScheduler> scheduler, BlockHasher hasher, size_t groups,
                 int64_t tokens_per_hash, int64_t num_workers)
      : scheduler_(std::move(scheduler)),
        hasher_(std::move(hasher)),
        groups_(groups),
        tokens_per_hash_(tokens_per_hash),
        num_workers_(num_workers) {}

  // REQUIRES: request.tokens is set. Add computes the hash chain. kFailedPrecondition: the id is in
  // use.
  Status Add(uint64_t id, CacheRequest request, const OffloadRequestOptions& options);
  // Adds sampled tokens to a request.
  Status Append(uint64_t id, std::span<const TokenId> tokens);
  Result<OffloadMatch> Match(uint64_t id, int64_t local_tokens, int64_t now_ms);
  Status UpdateAfterAlloc(uint64_t id, int64_t external_tokens,
                          std::span<const std::vector<BlockId>> tables);
  Result<OffloadPlan> BuildStep(const OwnedStep& step);
  Result<OffloadArrivals> OnCompletions(std::span<const OffloadCompletion> completions);
  // True: the request has a running load.
  Result<bool> Finish(uint64_t id, int64_t computed_tokens, bool aborted);
  OffloadScheduler& scheduler() { return *scheduler_; }
  size_t groups() const { return groups_; }

 private:
  Result<CacheRequest*> RequestOf(uint64_t id);
  Status CheckStep(const OwnedStep& step);
  void EraseUnborrowedRequests();

  // Destroyed after the scheduler, which borrows the requests.
  std::unordered_map<uint64_t, std::unique_ptr<CacheRequest>> requests_;
  std::unique_ptr<OffloadScheduler> scheduler_;
  BlockHasher hasher_;
  const size_t groups_;
  const int64_t tokens_per_hash_;
  const int64_t num_workers_;
};

}  // namespace kvcast::python
