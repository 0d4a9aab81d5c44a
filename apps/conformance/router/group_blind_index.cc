// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/group_blind_index.h"

#include <algorithm>
#include <variant>

namespace kvcast::tools {

GroupBlindIndex::GroupBlindIndex(std::span<const GroupSpec> groups) {
  for (const GroupSpec& group : groups) {
    block_size_ = block_size_ == 0 ? group.block_size : std::min(block_size_, group.block_size);
  }
}

std::vector<size_t> GroupBlindIndex::Apply(const EventBatch& batch) {
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      held_.insert(stored->block_hashes.begin(), stored->block_hashes.end());
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      for (const BlockHash& hash : removed->block_hashes) held_.erase(hash);
    } else {
      held_.clear();
    }
  }
  return {};
}

Promise GroupBlindIndex::Match(std::span<const BlockHash> chain, int64_t hash_block_size,
                               int64_t prompt_tokens) {
  const int64_t block = block_size_ == 0 ? hash_block_size : block_size_;
  int64_t tokens = 0;
  for (int64_t end = block; end < prompt_tokens && end / hash_block_size <= std::ssize(chain);
       end += block) {
    if (!held_.contains(chain[static_cast<size_t>(end / hash_block_size - 1)])) break;
    tokens = end;
  }
  return {.tokens = tokens};
}

}  // namespace kvcast::tools
