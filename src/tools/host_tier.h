// HostTier: the host memory behind a simulated engine. What moves is SimpleOffload's to say; the
// bytes are real, and every block's say which prefix it ends, so that a wrong one is seen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/cache_manager.h"
#include "kvcast/copy_backend.h"
#include "kvcast/host_pool.h"
#include "kvcast/offload_transfer.h"
#include "kvcast/simple_offload.h"
#include "kvcast/status.h"
#include "kvcast/transfer_engine.h"

namespace kvcast::tools {

struct HostTierConfig {
  int64_t cpu_blocks = 0;  // null block included
  StoreMode mode = StoreMode::kEager;
  size_t block_bytes = 256;  // of a simulated block, on both sides: whole words of 8 bytes
  EventHashForm hash_form = EventHashForm::kInt64;
};

class HostTier {
 public:
  // Copies go through `backend`. `cache` outlives the tier.
  static Result<std::unique_ptr<HostTier>> Create(const HostTierConfig& config, CacheManager& cache,
                                                  std::unique_ptr<CopyBackend> backend);

  SimpleOffload& offload() { return *offload_; }

  // The model computed tokens [begin, end) of a request: blocks that it completed get their bytes.
  void Compute(const CacheRequest& request, int64_t begin, int64_t end);
  // The request's whole blocks among its first `tokens` tokens hold what they should, in all
  // groups; counts those that do not.
  void Check(const CacheRequest& request, int64_t tokens);
  int64_t checked_blocks() const { return checked_blocks_; }
  int64_t wrong_blocks() const { return wrong_blocks_; }

  // The request has its blocks; the load of its external tokens begins with the next BuildStep. Not
  // ok: see SimpleOffload::UpdateAfterAlloc.
  Status AfterAlloc(const CacheRequest& request, int64_t external_tokens);

  // Ends the scheduling of a step and starts its loads, whose bytes may be there at once or any
  // time later.
  void BuildStep(std::span<const StepRequest> scheduled);
  // Starts the stores of the step. After its computation: a request may have hit what another one
  // computes in the same step.
  void StartStores();
  // Waits for the stores of the steps before, and tells the scheduler.
  void CompleteStores();
  // Waits for a request's load and tells the scheduler. False: it failed.
  bool CompleteLoad(const std::string& request);

  int64_t stored_blocks() const { return stored_blocks_; }
  int64_t loaded_blocks() const { return loaded_blocks_; }

 private:
  struct Store {
    int64_t event;
    TransferJobId job;
  };
  struct Load {
    std::string request;
    TransferJobId job;
  };

  HostTier(const HostTierConfig& config, CacheManager& cache, HostPool gpu, HostPool host)
      : config_(config), cache_(cache), gpu_(std::move(gpu)), host_(std::move(host)) {}

  std::span<std::byte> BytesOf(const HostPool& pool, BlockId block) const {
    return {pool.base() + block.value * config_.block_bytes, config_.block_bytes};
  }
  TransferJobId Submit(CopyDirection direction, const BlockPairs& pairs);
  // Waits for the job. False: it failed.
  bool Finish(TransferJobId job);
  template <typename Visit>
  void ForEachBlock(const CacheRequest& request, int64_t begin, int64_t end, const Visit& visit);

  const HostTierConfig config_;
  CacheManager& cache_;
  HostPool gpu_;
  HostPool host_;
  std::unique_ptr<SimpleOffload> offload_;
  std::unique_ptr<TransferEngine> transfer_;  // after the pools
  TransferStep step_;
  TransferLists lists_;
  std::vector<Store> stores_;  // under way
  std::vector<Load> loads_;    // those of one step are one job
  std::vector<std::string> new_loads_;
  std::vector<TransferResult> results_;
  uint64_t next_job_ = 0;
  int64_t checked_blocks_ = 0;
  int64_t wrong_blocks_ = 0;
  int64_t stored_blocks_ = 0;
  int64_t loaded_blocks_ = 0;
};

}  // namespace kvcast::tools
