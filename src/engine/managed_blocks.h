// ManagedBlocks: gives an offload tier access to the blocks of a CacheManager.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/engine/gpu_block_pool.h"
#include "src/engine/block_pool.h"
#include "src/engine/group_managers.h"
#include "src/engine/request_slots.h"

namespace kvcast::engine {

class ManagedBlocks final : public GpuBlockPool {
 public:
  // The arguments must outlive this object.
  ManagedBlocks(BlockPool& pool, const GroupManagers& managers, const RequestSlots& slots)
      : pool_(pool), managers_(managers), slots_(slots) {}

  std::span<const BlockId> BlockTable(const CacheRequest& request, GroupIdx group) const override;
  std::optional<BlockContent> ContentOf(BlockId block) const override;
  std::optional<BlockId> NextFree(std::optional<BlockId> after) const override;
  bool IsFree(BlockId block) const override;
  void Pin(std::span<const BlockId> blocks) override;
  void Unpin(std::span<const BlockId> blocks, bool take_next) override;

  // The number of references of a block that are pins.
  uint32_t pins(BlockId block) const { return block.value < pins_.size() ? pins_[block.value] : 0; }

 private:
  BlockPool& pool_;
  const GroupManagers& managers_;
  const RequestSlots& slots_;
  std::vector<uint32_t> pins_;  // by block; empty until the first pin
};

}  // namespace kvcast::engine
