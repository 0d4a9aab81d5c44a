// HostTier: the host memory behind a simulated engine. What moves is SimpleOffload's to say; the
// bytes are real, and every block's say which prefix it ends, so that a wrong one is seen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/cache_manager.h"
#include "kvcast/copy_backend.h"
#include "kvcast/cuda_device.h"
#include "kvcast/offload_transfer.h"
#include "kvcast/simple_offload.h"
#include "kvcast/status.h"
#include "kvcast/transfer_engine.h"
#include "src/tools/tier_memory.h"

namespace kvcast::tools {

struct HostTierConfig {
  int64_t cpu_blocks = 0;  // null block included
  StoreMode mode = StoreMode::kEager;
  size_t block_bytes = 256;  // of a simulated block, on both sides: whole words of 8 bytes
  EventHashForm hash_form = EventHashForm::kInt64;
};

class HostTier {
 public:
  // The GPU's blocks are plain memory too, and copies go through `backend`. `cache` outlives the
  // tier.
  static Result<std::unique_ptr<HostTier>> Create(const HostTierConfig& config, CacheManager& cache,
                                                  std::unique_ptr<CopyBackend> backend);
  // The GPU's blocks are the GPU's.
  static Result<std::unique_ptr<HostTier>> Create(const HostTierConfig& config, CacheManager& cache,
                                                  const CudaDevice& device);

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

  using MakeMemory = std::function<Result<TierMemory>(const TierMemoryConfig&)>;

  HostTier(const HostTierConfig& config, CacheManager& cache, TierMemory memory)
      : config_(config), cache_(cache), memory_(std::move(memory)) {}
  static Result<std::unique_ptr<HostTier>> CreateIn(const HostTierConfig& config,
                                                    CacheManager& cache,
                                                    const MakeMemory& make_memory);

  TransferJobId Submit(CopyDirection direction, const BlockPairs& pairs);
  // Waits for the job. False: it failed.
  bool Finish(TransferJobId job);
  // Writes to blocks_ and words_ the whole blocks that end in (begin, end], and what they hold.
  void ListBlocks(const CacheRequest& request, int64_t begin, int64_t end);

  const HostTierConfig config_;
  CacheManager& cache_;
  TierMemory memory_;
  std::unique_ptr<SimpleOffload> offload_;
  std::unique_ptr<TransferEngine> transfer_;  // after the memory
  std::vector<BlockId> blocks_;               // scratch
  std::vector<uint64_t> words_;               // scratch
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
