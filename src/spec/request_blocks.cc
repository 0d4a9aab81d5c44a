// The number of blocks that one request can hold: the formulas of start-up sizing and admission.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kvcast/spec/cache_spec.h"
#include "src/spec/window.h"

namespace kvcast {
namespace {

// Blocks for one sequence. The number can be less than in the start-up formula: the start-up
// formula has one more block for a window that begins inside a block. A sequence that is shorter
// than its window does not need this block.
int64_t BlocksForSequence(const GroupSpec& group, const RequestLimits& limits) {
  const int64_t blocks = MaxBlocksPerRequest(group, limits);
  if (!MaxAdmissionBlocks(group, limits.max_model_len, limits.max_in_flight_tokens)) return blocks;
  return std::min(blocks, CeilDiv(limits.max_model_len, group.block_size));
}

}  // namespace

std::optional<int64_t> MaxAdmissionBlocks(const GroupSpec& group, int64_t max_model_len,
                                          int64_t max_in_flight_tokens) {
  if (IsWindowKind(group.kind)) {
    const int64_t held_tokens = internal::RetainedWindowTokens(group) + max_in_flight_tokens;
    // One more block, because the window may begin inside a block.
    return CeilDiv(std::min(held_tokens, max_model_len), group.block_size) + 1;
  }
  if (group.kind == SpecKind::kChunkedLocalAttention) {
    return CeilDiv(std::min(group.chunk_size + max_in_flight_tokens, max_model_len),
                   group.block_size);
  }
  return std::nullopt;
}

RequestLimits LimitsOf(const CacheConfig& config) {
  return {config.max_model_len, config.max_in_flight_tokens, config.max_encoder_tokens};
}

int64_t MaxBlocksPerRequest(const GroupSpec& group, const RequestLimits& limits) {
  const auto cap = MaxAdmissionBlocks(group, limits.max_model_len, limits.max_in_flight_tokens);
  if (cap) return *cap;
  switch (group.kind) {
    case SpecKind::kMamba:
      // Two blocks: the state from which a step starts, and the state that the step writes.
      if (group.mamba_mode == MambaMode::kAlign)
        return 2 + group.speculative_blocks + group.prefill_checkpoint_blocks;
      return CeilDiv(limits.max_model_len, group.block_size) + group.speculative_blocks;
    case SpecKind::kCrossAttention:
      return CeilDiv(limits.max_encoder_tokens, group.block_size);
    case SpecKind::kEncoderOnlyAttention:
      return 0;
    case SpecKind::kCircularBuffer:
      return 1;
    default:
      return CeilDiv(limits.max_model_len, group.block_size);
  }
}

int64_t MaxBlocksPerRequest(const CacheConfig& config) {
  int64_t blocks = 0;
  for (const GroupSpec& group : config.groups) {
    blocks += MaxBlocksPerRequest(group, LimitsOf(config));
  }
  return blocks;
}

int64_t ReservedBlocks(const CacheConfig& config) {
  int64_t blocks = 1;
  for (const GroupSpec& group : config.groups) {
    if (group.kind != SpecKind::kSinkFullAttention) continue;
    blocks += group.sink_tokens / group.block_size;
  }
  return blocks;
}

int64_t MaxCopyBlocks(const CacheConfig& config) {
  if (!config.enable_caching) return 0;
  const bool partial_hits = PartialHitsEnabled(config);
  return std::count_if(config.groups.begin(), config.groups.end(), [&](const GroupSpec& group) {
    if (group.block_size <= config.hash_block_size) return false;
    // The end of a request's own prompt may be cached inside a block, and the next step of the
    // request overwrites that block.
    if (group.kind == SpecKind::kMamba && group.mamba_mode == MambaMode::kAlign) return true;
    return partial_hits && (IsFullKind(group.kind) || group.kind == SpecKind::kMamba);
  });
}

int64_t RequiredBlocks(const CacheConfig& config, int64_t total_tokens, int64_t encoder_tokens) {
  RequestLimits limits = LimitsOf(config);
  limits.max_model_len = std::min(limits.max_model_len, total_tokens);
  limits.max_encoder_tokens = encoder_tokens;
  int64_t blocks = ReservedBlocks(config) + MaxCopyBlocks(config);
  for (const GroupSpec& group : config.groups) blocks += BlocksForSequence(group, limits);
  return blocks;
}

}  // namespace kvcast
