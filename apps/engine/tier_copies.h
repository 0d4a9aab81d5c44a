// TierCopies: the two pools behind a simulated engine, and the copies between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "apps/engine/tier_memory.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/transfer/transfer_engine.h"

namespace kvcast::tools {

struct TierCopiesConfig {
  TierMemoryConfig memory;  // host_blocks: of block_bytes, and no less than the slots need
  size_t slot_bytes = 0;    // of host memory
  // Groups of the jobs, all with the same blocks: a pool of pages.
  size_t groups = 1;
  uint32_t blocks_per_chunk = 1;
};

class TierCopies {
 public:
  using MakeMemory = std::function<Result<TierMemory>(const TierMemoryConfig&)>;
  static Result<std::unique_ptr<TierCopies>> Create(const TierCopiesConfig& config,
                                                    const MakeMemory& make_memory);

  // Writes word i to GPU block i of the list.
  void Fill(std::span<const BlockId> blocks, std::span<const uint64_t> words);
  // Of the GPU blocks of the list, those that do not hold their word.
  int64_t CountWrong(std::span<const BlockId> blocks, std::span<const uint64_t> words);

  // Starts a job; it copies after the fills before it. The destination is overwritten first, since
  // it may hold the right bytes already, and a copy that moves none must be found.
  void Submit(TransferJob job);
  // Waits for a job. To be called once for each job. False: it failed.
  bool Finish(TransferJobId job);

  int64_t stored_blocks() const { return stored_blocks_; }
  int64_t loaded_blocks() const { return loaded_blocks_; }

 private:
  TierCopies(const TierCopiesConfig& config, TierMemory memory)
      : config_(config), memory_(std::move(memory)) {}
  // Overwrites the destination.
  void Scribble(const TransferJob& job);

  const TierCopiesConfig config_;
  TierMemory memory_;
  std::unique_ptr<TransferEngine> engine_;  // after the memory
  std::vector<uint64_t> scribble_;          // scratch
  std::vector<TransferResult> results_;     // of jobs that Finish was not called for
  int64_t stored_blocks_ = 0;
  int64_t loaded_blocks_ = 0;
};

}  // namespace kvcast::tools
