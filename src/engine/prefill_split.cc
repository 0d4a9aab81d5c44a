// SPDX-License-Identifier: Apache-2.0
#include "kvcast/engine/prefill_split.h"

#include <algorithm>

namespace kvcast {
namespace {

int64_t BlockCount(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// Tokens of a block on one rank. Context parallelism spreads only the tokens of attention.
int64_t BlockSizeOfRank(const GroupSpec& group, int64_t ranks) {
  return group.kind == SpecKind::kMamba ? group.block_size : group.block_size / ranks;
}

}  // namespace

struct PrefillSplit::Prefill {
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;       // number of known tokens of the request
  int64_t junction = 0;     // end of the prefix that other requests share; 0: none
  int64_t start = 0;        // start of the chunk
  int64_t end = 0;          // end of the requested chunk
  int64_t prefill_end = 0;  // end of the prompt, or of the part that is recomputed
};

PrefillSplit::PrefillSplit(const CacheConfig& config, int64_t max_chunk_tokens)
    : rules_(config.rules),
      partial_hits_(PartialHitsEnabled(config)),
      keeps_junctions_(config.mamba_shared_prefix_checkpoint),
      lookahead_(config.chain_form.lookahead),
      hash_block_size_(config.hash_block_size),
      max_chunk_tokens_(max_chunk_tokens),
      drafted_ahead_(config.mtp_lookahead_tokens) {
  for (const GroupSpec& group : config.groups) {
    drops_ |= group.eagle;
    if (!TakesPart(group)) continue;
    const int64_t size = BlockSizeOfRank(group, config.decode_context_parallel);
    block_size_ = block_size_ == 0 ? size : std::min(block_size_, size);
    if (group.kind != SpecKind::kMamba || group.mamba_mode != MambaMode::kAlign) continue;
    splits_ |= config.enable_caching;
    if (group.prefill_checkpoint_blocks == 0) continue;
    checkpoint_alignment_ = std::max(checkpoint_alignment_, group.prefill_checkpoint_alignment);
  }
}

int64_t PrefillSplit::CheckpointBefore(int64_t tokens, int64_t hash_block_size) const {
  const int64_t whole = tokens / hash_block_size * hash_block_size;
  if (drops_) return std::max<int64_t>(0, whole - hash_block_size);
  if (rules_ < EngineRules::kV032) return whole;
  return std::max<int64_t>(0, tokens - std::max<int64_t>(1, lookahead_)) / hash_block_size *
         hash_block_size;
}

// True if the chunk is the final chunk of the prefill and keeps the prompt's checkpoint in a block
// of its own. The prefill then needs no stop at the checkpoint.
bool PrefillSplit::KeepsCheckpoint(const Prefill& prefill) const {
  const auto& [prompt, tokens, junction, start, end, prefill_end] = prefill;
  if (checkpoint_alignment_ == 0 || end < prefill_end) return false;
  const int64_t checkpoint = CheckpointBefore(prefill_end, hash_block_size_);
  const bool columns_apart = BlockCount(end, block_size_) - 2 > BlockCount(start, block_size_) - 1;
  return columns_apart && start % hash_block_size_ == 0 && start + hash_block_size_ <= checkpoint &&
         checkpoint < end && (checkpoint - start) % checkpoint_alignment_ == 0;
}

// Returns the end of the chunk. Before the end of the prefill, a chunk ends at a block boundary.
// Exception: a block that is larger than any chunk is filled by several chunks.
int64_t PrefillSplit::AlignedEnd(const Prefill& prefill, int64_t last_state) const {
  const int64_t before = rules_ < EngineRules::kMain2026August
                             ? std::min(prefill.prefill_end, last_state)
                             : prefill.prefill_end;
  if (prefill.end >= before) return prefill.end;
  const int64_t aligned = prefill.end / block_size_ * block_size_;
  return aligned > prefill.start || block_size_ <= max_chunk_tokens_ ? aligned : prefill.end;
}

int64_t PrefillSplit::ClippedEnd(const Prefill& prefill) const {
  const bool checkpoint = KeepsCheckpoint(prefill);
  const int64_t last_state = checkpoint ? 0 : CheckpointBefore(prefill.tokens, block_size_);
  const int64_t start = prefill.start;
  int64_t end = AlignedEnd(prefill, last_state);
  int64_t first = end;
  const auto stop_at = [&](int64_t stop) {
    if (start < stop && stop < first) first = stop;
  };
  if (!checkpoint && start % block_size_ != 0) stop_at((start / block_size_ + 1) * block_size_);
  stop_at(last_state);
  if (partial_hits_ && !checkpoint) {
    const bool newer = rules_ >= EngineRules::kV032;
    const int64_t tail = newer ? CheckpointBefore(prefill.prompt_tokens, hash_block_size_)
                               : prefill.prompt_tokens / hash_block_size_ * hash_block_size_;
    if (last_state < tail && tail < prefill.prompt_tokens) stop_at(tail);
  }
  if (start < prefill.junction && prefill.junction < end) {
    stop_at(start + (prefill.junction - start) / block_size_ * block_size_);
    if (keeps_junctions_) stop_at(prefill.junction);
  }
  return std::max(start, first);
}

int64_t PrefillSplit::ChunkTokens(const CacheRequest& request, int64_t computed,
                                  int64_t tokens) const {
  const auto length = static_cast<int64_t>(request.tokens.size());
  const bool ends_at_junctions = rules_ >= EngineRules::kMain2026August;
  const Prefill prefill{.prompt_tokens = request.prompt_tokens,
                        .tokens = length,
                        .junction = ends_at_junctions ? request.shared_prefix_boundary : 0,
                        .start = computed,
                        .end = computed + tokens,
                        .prefill_end = std::max(request.prompt_tokens, length - 1)};
  int64_t chunk = tokens;
  if (splits_ && computed < prefill.prefill_end) chunk = ClippedEnd(prefill) - computed;
  // A drafter with several modules reads the prompt after the chunk. Either all tokens that the
  // drafter reads must be known, or the prefill must end with the chunk.
  const int64_t left = length - computed - chunk;
  if (left > 0 && left < drafted_ahead_) chunk -= drafted_ahead_ - left;
  return std::max<int64_t>(chunk, 0);
}

}  // namespace kvcast
