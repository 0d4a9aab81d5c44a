// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kvcast/offload_rules.h"

namespace kvcast {

bool StoreReachable(const OffloadGroup& group, int64_t chunk, int64_t storable) {
  if (!group.window_chunks || !group.alignment_chunks) return true;
  const int64_t position = chunk % *group.alignment_chunks;
  const int64_t segment = std::min(*group.alignment_chunks, storable - (chunk - position));
  return position >= segment - (*group.window_chunks + (group.eagle ? 1 : 0));
}

int64_t OffloadableTokens(const StoreLimits& limits, int64_t tokens_after_step) {
  int64_t tokens = std::min(tokens_after_step, limits.num_tokens);
  if (limits.max_offload_tokens) tokens = std::min(tokens, *limits.max_offload_tokens);
  if (limits.prompt_only) tokens = std::min(tokens, limits.prompt_tokens);
  return tokens;
}

int64_t StorableChunks(const OffloadGroup& group, int64_t blocks_per_chunk,
                       int64_t offloadable_tokens, int64_t prompt_tokens,
                       int64_t allocated_blocks) {
  int64_t chunks = offloadable_tokens / group.tokens_per_chunk;
  // The draft head still rewrites the newest one. A prompt's own chunks are complete: a request
  // that shares the prompt must find them without a hole.
  if (group.eagle && offloadable_tokens > prompt_tokens) --chunks;
  return std::clamp<int64_t>(chunks, 0, allocated_blocks / blocks_per_chunk);
}

}  // namespace kvcast
