// SPDX-License-Identifier: Apache-2.0
#include "src/engine/full_attention_manager.h"

#include <algorithm>

namespace kvcast::engine {

FullAttentionManager::FullAttentionManager(const GroupContext& context)
    : SingleTypeManager(context) {
  if (spec().kind == SpecKind::kSinkFullAttention) {
    pool().Allocate(spec().sink_tokens / block_size(), sink_blocks_);
  }
}

void FullAttentionManager::CacheBlocks(RequestSlot slot, const CacheRequest& request,
                                       int64_t tokens) {
  SingleTypeManager::CacheBlocks(slot, request, tokens);
  const int64_t hash_block_size = pool().hash_block_size();
  if (block_size() == hash_block_size || context().rules < EngineRules::kMain2026August) return;
  // Only the last hash boundary of the prompt gets an entry inside a block.
  const bool newer = context().rules >= EngineRules::kV032;
  // A repeated request can hit all tokens except the last token.
  const int64_t limit = request.prompt_tokens - (newer && !spec().eagle ? 1 : 0);
  const int64_t boundary =
      std::min<int64_t>(limit / hash_block_size, std::ssize(request.chain)) * hash_block_size;
  if (boundary == 0 || boundary > tokens || boundary % block_size() == 0) return;
  const auto index = static_cast<size_t>(boundary / block_size());
  const auto request_table = table(slot);
  if (index >= request_table.size()) return;
  pool().CachePartialBlock({request, group(), request_table[index], boundary});
}

void FullAttentionManager::RemoveSkipped(RequestSlot slot, int64_t processed_tokens,
                                         int64_t prompt_tokens) {
  // If the prompt's length is unknown (0), the blocks that no step reads again are unknown too.
  if (spec().reference_window == 0 || prompt_tokens == 0) return;
  const int64_t window_begin = std::max(prompt_tokens, processed_tokens - spec().reference_window);
  ReleaseRange(blocks(slot), CeilDiv(prompt_tokens, block_size()), window_begin / block_size());
}

}  // namespace kvcast::engine
