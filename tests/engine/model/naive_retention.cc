// The rules of a naive cache that select the computed blocks to cache.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/engine/model/naive_cache.h"

namespace kvcast::naive {

// True if the group caches block `index`. `boundaries`: in tokens.
bool Cache::Keeps(size_t group, int64_t index, const std::vector<int64_t>& boundaries) const {
  const GroupSpec& spec = config_.groups[group];
  const bool mamba = spec.kind == SpecKind::kMamba;
  const bool dense = !config_.retention_interval.has_value();
  if ((!mamba && !IsWindow(spec)) || (mamba && dense)) return true;
  if (config_.rules == EngineRules::kV021) return true;
  const int64_t unit = config_.rules >= EngineRules::kV032 ? grid_.alignment : grid_.step;
  if (!mamba && unit % spec.block_size != 0) return true;
  // A hit at a boundary reads `need` blocks that end at the boundary. With EAGLE, these blocks end
  // one block after the boundary.
  const int64_t shift = !mamba && spec.eagle ? 1 : 0;
  const int64_t need = mamba ? 1 : CeilOf(spec.sliding_window - 1, spec.block_size) + shift;
  const int64_t every = (dense ? unit : *config_.retention_interval) / spec.block_size;
  if (every > 0 && need >= every) return true;
  if (every > 0 && index >= shift && (index - shift) % every >= every - need) return true;
  if (dense) return false;
  return std::any_of(boundaries.begin(), boundaries.end(), [&](int64_t boundary) {
    const int64_t end = FloorTo(boundary, unit) / spec.block_size + shift;
    return index >= end - need && index < end;
  });
}

int64_t Cache::CacheableTokens(size_t group, int64_t tokens) const {
  const int64_t recomputed = std::max<int64_t>(0, config_.mtp_lookahead_tokens - 1);
  const int64_t final_tokens = std::max<int64_t>(0, tokens - recomputed);
  if (config_.groups.size() == 1) return final_tokens;
  const bool every_token = grid_.inside_blocks || config_.rules == EngineRules::kV021;
  const int64_t step = every_token ? 1 : grid_.step;
  const int64_t aligned = FloorTo(tokens, step);
  const GroupSpec& spec = config_.groups[group];
  if (!spec.eagle || aligned == 0) return aligned;
  return std::min(final_tokens, FloorTo(final_tokens, step) + spec.block_size);
}

void Cache::CacheBlocks(const CacheRequest& request, int64_t tokens) {
  const auto running = requests_.find(request.id);
  if (!config_.enable_caching || running == requests_.end()) return;
  tokens = std::min(tokens, static_cast<int64_t>(request.tokens.size()));
  Request& entry = running->second;
  for (size_t i = 0; i < config_.groups.size(); ++i) {
    if (!IsPrefixCached(config_.groups[i])) continue;
    const int64_t cacheable = CacheableTokens(i, tokens);
    CacheGroup(i, entry.groups[i], request, entry.boundary, cacheable);
    CacheCheckpoint(i, entry.groups[i], request, entry.boundary);
    CacheTail(i, entry.groups[i], request, cacheable);
  }
}

// The prefix lengths at which a later request with the same prompt can hit.
std::vector<int64_t> Cache::Boundaries(size_t group, const CacheRequest& request,
                                       int64_t boundary) const {
  std::vector<int64_t> boundaries = {request.prompt_tokens - 1};
  if (drops_ && config_.rules >= EngineRules::kV032) {
    boundaries.clear();
    for (const int64_t end : {request.prompt_tokens - 1, request.prompt_tokens}) {
      boundaries.push_back(std::max<int64_t>(0, FloorTo(end, grid_.step) - grid_.step));
    }
  }
  if (boundary == 0) return boundaries;
  boundaries.push_back(boundary);
  const GroupSpec& spec = config_.groups[group];
  if (spec.eagle && config_.rules >= EngineRules::kV033) {
    boundaries.push_back(boundary - spec.block_size);
  }
  return boundaries;
}

void Cache::CacheGroup(size_t group, Held& held, const CacheRequest& request, int64_t boundary,
                       int64_t tokens) {
  const GroupSpec& spec = config_.groups[group];
  const int64_t end = std::min(tokens / spec.block_size, static_cast<int64_t>(held.table.size()));
  const int64_t begin = held.num_cached;
  if (begin >= end) return;
  const std::vector<int64_t> boundaries = Boundaries(group, request, boundary);
  std::vector<bool> keep;
  for (int64_t i = begin; i < end; ++i) keep.push_back(Keeps(group, i, boundaries));
  pool_.CacheFull(request, group, held.table, begin, end, keep);
  held.num_cached = end;
  if (spec.kind != SpecKind::kMamba) return;
  for (int64_t i = begin; i < end; ++i) {
    const Key* key = pool_.FirstKey(held.table[static_cast<size_t>(i)]);
    if (key != nullptr) cached_now_[group].insert(*key);
  }
}

// A hit leaves at least one token to compute, and a draft head drops one more unit.
int64_t Cache::LastState(int64_t tokens, int64_t unit) const {
  if (config_.rules < EngineRules::kV032) return FloorTo(tokens, unit);
  if (drops_) return std::max<int64_t>(0, FloorTo(tokens, unit) - unit);
  return FloorTo(std::max<int64_t>(0, tokens - 1), unit);
}

std::optional<Cache::Checkpoint> Cache::CheckpointOf(size_t group, const Held* held,
                                                     const Lengths& lengths) const {
  const GroupSpec& spec = config_.groups[group];
  const int64_t start = lengths.total;
  const int64_t end = lengths.main;
  if (spec.prefill_checkpoint_blocks == 0 || spec.prefill_checkpoint_alignment == 0) return {};
  if (config_.retention_interval == 0 && end < lengths.prefill) return {};
  const Checkpoint kept{.index = CeilOf(end, spec.block_size) - 2,
                        .tokens = LastState(end, grid_.alignment)};
  if (kept.index <= CeilOf(start, spec.block_size) - 1) return {};
  if (start % grid_.hash_block_size != 0 || kept.tokens < start + grid_.hash_block_size) return {};
  if (kept.tokens >= end) return {};
  if ((kept.tokens - start) % spec.prefill_checkpoint_alignment != 0) return {};
  // The block at the index must be new, or a block for drafts.
  if (held == nullptr) return kept;
  const int64_t drafts = held->started ? spec.speculative_blocks : 0;
  if (kept.index < static_cast<int64_t>(held->table.size()) - drafts) return {};
  return kept;
}

// `boundary`: end of the prefix that other requests share, or 0.
void Cache::CacheCheckpoint(size_t group, Held& held, const CacheRequest& request,
                            int64_t boundary) {
  if (!held.checkpoint) return;
  const auto [index, tokens] = *held.checkpoint;
  held.checkpoint.reset();
  const Block block = held.table[static_cast<size_t>(index)];
  if (pool_.FirstKeyTokens(block) == tokens) return;
  pool_.Evict(block);
  bool kept =
      tokens == boundary || tokens == LastState(request.prompt_tokens, grid_.hash_block_size);
  if (!config_.retention_interval) kept = true;
  if (config_.retention_interval > 0 && tokens % *config_.retention_interval == 0) kept = true;
  if (kept) CacheStateAt(group, block, request, tokens);
}

// Caches the block of the state after `tokens` tokens. False: the block is the null block.
bool Cache::CacheStateAt(size_t group, Block block, const CacheRequest& request, int64_t tokens) {
  if (!pool_.CachePartial(request, group, block, tokens)) return false;
  const auto last = static_cast<size_t>(tokens / grid_.hash_block_size - 1);
  cached_now_[group].insert({names_.ChainOf(request)[last], group});
  return true;
}

// Caches the last hash boundary of the prompt that a later request can hit.
void Cache::CacheTail(size_t group, Held& held, const CacheRequest& request, int64_t tokens) {
  const GroupSpec& spec = config_.groups[group];
  if (config_.rules < EngineRules::kMain2026August) return;
  if (spec.block_size == grid_.hash_block_size) return;
  if (spec.kind == SpecKind::kMamba && spec.mamba_mode == MambaMode::kAlign) {
    return CacheStateTail(group, held, request, tokens);
  }
  if (!IsFull(spec)) return;
  const bool all_hit = config_.rules < EngineRules::kV032 || spec.eagle;
  const int64_t end = FloorTo(request.prompt_tokens - (all_hit ? 0 : 1), grid_.hash_block_size);
  const int64_t index = end / spec.block_size;
  if (end == 0 || end % spec.block_size == 0 || tokens < end) return;
  if (index >= static_cast<int64_t>(held.table.size())) return;
  pool_.CachePartial(request, group, held.table[static_cast<size_t>(index)], end);
}

// A state belongs to exactly one length, and the next step overwrites the state.
void Cache::CacheStateTail(size_t group, Held& held, const CacheRequest& request, int64_t tokens) {
  const GroupSpec& spec = config_.groups[group];
  const bool later_state = spec.eagle && config_.mtp_lookahead_tokens > 1;
  if (later_state || tokens == 0) return;
  if (tokens != LastState(request.prompt_tokens, grid_.hash_block_size)) return;
  const bool inside = tokens % spec.block_size != 0;
  if (!inside && config_.rules < EngineRules::kV032) return;
  const int64_t index = CeilOf(tokens, spec.block_size) - 1;
  if (index >= static_cast<int64_t>(held.table.size())) return;
  const Block block = held.table[static_cast<size_t>(index)];
  if (!inside && pool_.FirstKeyTokens(block) == tokens) return;
  if (!CacheStateAt(group, block, request, tokens) || !inside) return;
  held.shared_tail = index;
  held.num_cached = index;
}

}  // namespace kvcast::naive
