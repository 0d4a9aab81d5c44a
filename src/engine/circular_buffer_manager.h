// Circular buffers: one scratch block for the lifetime of a request. The block is never cached.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/engine/single_type_manager.h"

namespace kvcast::engine {

class CircularBufferManager final : public SingleTypeManager {
 public:
  explicit CircularBufferManager(const GroupContext& context) : SingleTypeManager(context) {}

  int64_t BlocksToAllocate(RequestSlot slot, std::span<const BlockId> /*hits*/,
                           const SlotDemand& /*demand*/) const override {
    return table(slot).empty() ? 1 : 0;
  }
  void AllocateExternal(RequestSlot /*slot*/, const SlotDemand& /*demand*/) override {}
  void AllocateNew(RequestSlot slot, const SlotDemand& /*demand*/,
                   std::vector<BlockId>& added) override {
    GrowTable(blocks(slot), 1, &added);
  }
  void CacheBlocks(RequestSlot /*slot*/, const CacheRequest& /*request*/,
                   int64_t /*tokens*/) override {}
  void RemoveSkipped(RequestSlot /*slot*/, int64_t /*processed_tokens*/,
                     int64_t /*prompt_tokens*/) override {}
};

}  // namespace kvcast::engine
