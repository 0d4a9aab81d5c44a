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
  // A hit at a boundary reads `need` blocks that end at the boundary. With EAGLE, these blocks end
  // one block after the boundary.
  const int64_t shift = !mamba && spec.eagle ? 1 : 0;
  const int64_t need = mamba ? 1 : CeilOf(spec.sliding_window - 1, spec.block_size) + shift;
  const int64_t every = (dense ? grid_.step : *config_.retention_interval) / spec.block_size;
  if (every > 0 && need >= every) return true;
  if (every > 0 && index >= shift && (index - shift) % every >= every - need) return true;
  if (dense) return false;
  return std::any_of(boundaries.begin(), boundaries.end(), [&](int64_t boundary) {
    const int64_t end = FloorTo(boundary, grid_.step) / spec.block_size + shift;
    return index >= end - need && index < end;
  });
}

int64_t Cache::CacheableTokens(size_t group, int64_t tokens) const {
  const int64_t again = std::max<int64_t>(0, config_.mtp_lookahead_tokens - 1);
  const int64_t final_tokens = std::max<int64_t>(0, tokens - again);
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
  Request& held = running->second;
  for (size_t i = 0; i < config_.groups.size(); ++i) {
    if (!IsPrefixCached(config_.groups[i])) continue;
    const int64_t cacheable = CacheableTokens(i, tokens);
    CacheGroup(i, held.groups[i], request, held.boundary, cacheable);
    CacheTail(i, held.groups[i], request, cacheable);
  }
}

void Cache::CacheGroup(size_t group, Held& held, const CacheRequest& request, int64_t boundary,
                       int64_t tokens) {
  const GroupSpec& spec = config_.groups[group];
  const int64_t end = std::min(tokens / spec.block_size, static_cast<int64_t>(held.table.size()));
  const int64_t begin = held.num_cached;
  if (begin >= end) return;
  std::vector<int64_t> boundaries = {request.prompt_tokens - 1};
  if (boundary != 0) boundaries.push_back(boundary);
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

// Caches the last hash boundary of the prompt if it lies inside a block.
void Cache::CacheTail(size_t group, Held& held, const CacheRequest& request, int64_t tokens) {
  const GroupSpec& spec = config_.groups[group];
  if (config_.rules != EngineRules::kMain2026August) return;
  const int64_t end = FloorTo(request.prompt_tokens, grid_.hash_block_size);
  if (end == 0 || end % spec.block_size == 0) return;
  const int64_t index = end / spec.block_size;
  if (index >= static_cast<int64_t>(held.table.size())) return;
  const Block block = held.table[static_cast<size_t>(index)];
  if (IsFull(spec) && tokens >= end) pool_.CachePartial(request, group, block, end);
  // A state belongs to exactly one length, and the next step overwrites the state.
  if (spec.kind != SpecKind::kMamba || spec.mamba_mode != MambaMode::kAlign) return;
  const bool later_state = spec.eagle && config_.mtp_lookahead_tokens > 1;
  if (later_state || tokens != end || !pool_.CachePartial(request, group, block, end)) return;
  cached_now_[group].insert(
      {names_.ChainOf(request)[static_cast<size_t>(end / grid_.hash_block_size - 1)], group});
  held.shared_tail = index;
  held.num_cached = index;
}

}  // namespace kvcast::naive
