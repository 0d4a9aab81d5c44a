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
  // memory.host_blocks must be large enough for all slots.
  TierMemoryConfig memory;
  size_t slot_bytes = 0;  // size of a host-memory slot
  // Number of groups in a job. All groups share the blocks of one pool.
  size_t groups = 1;
  uint32_t blocks_per_chunk = 1;
};

class TierCopies {
 public:
  using MakeMemory = std::function<Result<TierMemory>(const TierMemoryConfig&)>;
  static Result<std::unique_ptr<TierCopies>> Create(const TierCopiesConfig& config,
                                                    const MakeMemory& make_memory);

  // Fills GPU block i of the list with word i; see TierMemory.
  void Fill(std::span<const BlockId> blocks, std::span<const uint64_t> words);
  // Returns how many GPU blocks of the list do not hold their word.
  int64_t CountWrong(std::span<const BlockId> blocks, std::span<const uint64_t> words);

  // Starts a job. The job copies after the earlier fills. Submit first overwrites the destination
  // with other bytes, so that CountWrong detects a job that copies nothing.
  void Submit(TransferJob job);
  // Waits for a job. Must be called once for each job. False: the job failed.
  bool Finish(TransferJobId job);

  int64_t stored_blocks() const { return stored_blocks_; }
  int64_t loaded_blocks() const { return loaded_blocks_; }

 private:
  TierCopies(const TierCopiesConfig& config, TierMemory memory)
      : config_(config), memory_(std::move(memory)) {}
  // Overwrites the destination of the job.
  void OverwriteDestination(const TransferJob& job);

  const TierCopiesConfig config_;
  TierMemory memory_;
  std::unique_ptr<TransferEngine> engine_;  // destroyed before the memory
  std::vector<uint64_t> overwrite_words_;   // scratch
  std::vector<TransferResult> results_;     // of completed jobs, until their Finish
  int64_t stored_blocks_ = 0;
  int64_t loaded_blocks_ = 0;
};

}  // namespace kvcast::tools
