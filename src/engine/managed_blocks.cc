// SPDX-License-Identifier: Apache-2.0
#include "src/engine/managed_blocks.h"

#include "src/base/check.h"

namespace kvcast::engine {

std::span<const BlockId> ManagedBlocks::BlockTable(const CacheRequest& request,
                                                   GroupIdx group) const {
  const auto slot = slots_.Find(request.id);
  if (!slot || group.value >= managers_.size()) return {};
  return managers_[group.value].table(*slot);
}

std::optional<BlockContent> ManagedBlocks::ContentOf(BlockId block) const {
  const CachedBlockMap& cached = pool_.cached();
  if (!cached.HasKeys(block)) return std::nullopt;
  const BlockKey& key = cached.PrimaryKey(block);
  return BlockContent{key.digest, key.group, cached.PrimaryCoveredTokens(block)};
}

std::optional<BlockId> ManagedBlocks::NextFree(std::optional<BlockId> after) const {
  return pool_.NextFree(after);
}

bool ManagedBlocks::IsFree(BlockId block) const { return pool_.IsFreeCandidate(block); }

void ManagedBlocks::Pin(std::span<const BlockId> blocks) {
  pins_.resize(static_cast<size_t>(pool_.num_blocks()));
  pool_.Touch(blocks);
  for (const BlockId block : blocks) ++pins_[block.value];
}

void ManagedBlocks::Unpin(std::span<const BlockId> blocks, bool take_next) {
  for (const BlockId block : blocks) {
    KV_CHECK(pins(block) > 0);
    --pins_[block.value];
  }
  pool_.Free(blocks, take_next ? FreeTo::kHead : FreeTo::kUsual);
}

}  // namespace kvcast::engine
