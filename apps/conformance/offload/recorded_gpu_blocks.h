// RecordedGpuBlocks: the GPU pool in a recording of the simple offload scheduler.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/engine/gpu_block_pool.h"

namespace kvcast::tools {

class RecordedGpuBlocks final : public GpuBlockPool {
 public:
  explicit RecordedGpuBlocks(size_t num_groups) : num_groups_(num_groups) {}

  std::span<const BlockId> BlockTable(const CacheRequest& request, GroupIdx group) const override;
  std::optional<BlockContent> ContentOf(BlockId block) const override;
  std::optional<BlockId> NextFree(std::optional<BlockId> after) const override;
  bool IsFree(BlockId block) const override;
  void Pin(std::span<const BlockId> blocks) override;
  void Unpin(std::span<const BlockId> blocks, bool take_next) override;

  // Replaces a request's table, or appends to it.
  void SetTable(const std::string& request, const nlohmann::json& blocks, bool append);
  // Clears the blocks that the next scan reads. All blocks are then unknown.
  void ClearScan();
  void SetContent(BlockId block, const std::optional<BlockContent>& content);
  // Sets the free queue after the cursor. If `cursor` is given, that block is free.
  void SetFreeQueue(std::optional<BlockId> cursor, std::vector<BlockId> blocks);

  // True: the scheduler used a block that the recording does not contain, or unpinned a block
  // too often.
  bool is_misused() const { return misused_; }
  int64_t pins() const;

 private:
  size_t num_groups_;
  std::unordered_map<std::string, std::vector<std::vector<BlockId>>> tables_;
  std::unordered_map<BlockId, std::optional<BlockContent>> contents_;
  std::optional<BlockId> cursor_;
  std::vector<BlockId> free_queue_;
  std::unordered_map<BlockId, int64_t> pins_;
  mutable bool misused_ = false;
};

}  // namespace kvcast::tools
