// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cross_attention_manager.h"

namespace kvcast::engine {

SlotDemand CrossAttentionManager::EncoderDemand(const SlotDemand& demand) const {
  SlotDemand encoder;
  if (spec().kind == SpecKind::kCrossAttention) encoder.tokens = demand.encoder_tokens;
  encoder.main_tokens = encoder.tokens;
  encoder.apply_admission_cap = demand.apply_admission_cap;
  return encoder;
}

int64_t CrossAttentionManager::BlocksToAllocate(RequestSlot slot, std::span<const BlockId>,
                                                const SlotDemand& demand) const {
  return SingleTypeManager::BlocksToAllocate(slot, {}, EncoderDemand(demand));
}

void CrossAttentionManager::AllocateNew(RequestSlot slot, const SlotDemand& demand,
                                        std::vector<BlockId>& added) {
  SingleTypeManager::AllocateNew(slot, EncoderDemand(demand), added);
}

}  // namespace kvcast::engine
