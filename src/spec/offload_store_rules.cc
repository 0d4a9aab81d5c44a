// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kvcast/spec/offload_rules.h"
#include "src/spec/retention.h"

namespace kvcast {

bool StoreReachable(const OffloadGroup& group, int64_t chunk, int64_t storable) {
  if (!group.window_chunks || !group.alignment_chunks) return true;
  const int64_t position = chunk % *group.alignment_chunks;
  const int64_t segment = std::min(*group.alignment_chunks, storable - (chunk - position));
  return position >= segment - (*group.window_chunks + (group.eagle ? 1 : 0));
}

void FillStoreMask(const OffloadLayout& layout, size_t group, int64_t begin, int64_t storable,
                   const StoreScope& scope, std::vector<bool>& keep) {
  const OffloadGroup& rules = layout.groups[group];
  keep.assign(static_cast<size_t>(std::max<int64_t>(storable - begin, 0)), true);
  const auto keep_bit = [&](int64_t chunk) { return keep[static_cast<size_t>(chunk - begin)]; };
  if (layout.rules < EngineRules::kV032) {
    for (int64_t i = begin; i < storable; ++i) keep_bit(i) = StoreReachable(rules, i, storable);
    return;
  }
  if (!rules.window_chunks || !layout.store_alignment) return;
  // The retention rule of blocks and hits is applied to chunks and loads. The window is set so that
  // a load needs window_chunks chunks.
  GroupSpec spec = rules.spec;
  spec.block_size = rules.tokens_per_chunk;
  spec.sliding_window = *rules.window_chunks * rules.tokens_per_chunk + 1;
  spec.eagle = rules.eagle;
  const int64_t boundaries[] = {scope.prompt_tokens - 1, scope.shared_prefix_boundary};
  Bitmap mask;
  const internal::RetentionRule rule{spec, *layout.store_alignment, layout.retention_interval};
  if (storable <= begin || !internal::FillRetentionMask(rule, begin, storable, boundaries, mask)) {
    return;
  }
  const bool keeps_end = !layout.retention_interval && !rules.eagle;
  const int64_t first_of_end = keeps_end ? storable - *rules.window_chunks : storable;
  for (int64_t i = begin; i < storable; ++i)
    keep_bit(i) = mask.Test(i - begin) || i >= first_of_end;
}

int64_t OffloadableTokens(const StoreLimits& limits, int64_t tokens_after_step) {
  int64_t tokens = std::min(tokens_after_step, limits.num_tokens);
  if (limits.max_offload_tokens) tokens = std::min(tokens, *limits.max_offload_tokens);
  if (limits.prompt_only) tokens = std::min(tokens, limits.prompt_tokens);
  return tokens;
}

int64_t StorableChunks(const OffloadGroup& group, int64_t blocks_per_chunk,
                       int64_t offloadable_tokens, int64_t prompt_tokens, int64_t allocated_blocks,
                       bool is_final) {
  int64_t chunks = offloadable_tokens / group.tokens_per_chunk;
  // The draft head still rewrites the newest chunk, so this chunk is not stored yet. All chunks of
  // a prompt are stored, because a request that shares the prompt must find them without a gap.
  if (group.eagle && offloadable_tokens > prompt_tokens && !is_final) --chunks;
  return std::clamp<int64_t>(chunks, 0, allocated_blocks / blocks_per_chunk);
}

}  // namespace kvcast
