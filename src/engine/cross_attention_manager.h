// Cross attention and encoder-only layers: groups that never take part in prefix caching. Cross
// attention holds the encoder's states of its own request. Encoder-only layers hold nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/engine/single_type_manager.h"

namespace kvcast::engine {

class CrossAttentionManager final : public SingleTypeManager {
 public:
  explicit CrossAttentionManager(const GroupContext& context) : SingleTypeManager(context) {}

  int64_t BlocksToAllocate(RequestSlot slot, std::span<const BlockId> hits,
                           const SlotDemand& demand) const override;
  void AllocateExternal(RequestSlot, const SlotDemand&) override {}
  void AllocateNew(RequestSlot slot, const SlotDemand& demand,
                   std::vector<BlockId>& added) override;
  void CacheBlocks(RequestSlot, const CacheRequest&, int64_t) override {}
  void RemoveSkipped(RequestSlot, int64_t, int64_t) override {}

 private:
  // The group's demand, counted in tokens of the encoder.
  SlotDemand EncoderDemand(const SlotDemand& demand) const;
};

}  // namespace kvcast::engine
