// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>

#include "kvcast/spec/offload_rules.h"
#include "src/spec/window.h"

namespace kvcast {
namespace {

Status Invalid(size_t group, const std::string& problem) {
  return {StatusCode::kInvalidArgument, "groups[" + std::to_string(group) + "]: " + problem};
}

// A load needs this number of tokens at the end of the prefix from a group. 0: all tokens.
int64_t WindowTokens(const GroupSpec& spec, const OffloadLayoutConfig& config) {
  if (IsWindowKind(spec.kind)) {
    if (!config.compatible) return spec.sliding_window + spec.extra_retained_tokens;
    if (config.rules < EngineRules::kV032) return spec.sliding_window;
    return spec.sliding_window + std::max<int64_t>(spec.extra_retained_tokens - 1, 0);
  }
  if (spec.kind == SpecKind::kChunkedLocalAttention) return spec.chunk_size;
  return spec.kind == SpecKind::kMamba ? 1 : 0;
}

Status CheckGroup(size_t index, const GroupSpec& spec, const OffloadLayoutConfig& config) {
  if (!IsCacheableKind(spec.kind))
    return Invalid(index, "the kind takes no part in prefix caching");
  if (spec.block_size <= 0 || spec.block_size % config.tokens_per_hash != 0) {
    return Invalid(index, "block_size must be a multiple of tokens_per_hash");
  }
  if (!IsFullKind(spec.kind) && WindowTokens(spec, config) <= 0) {
    const bool chunked = spec.kind == SpecKind::kChunkedLocalAttention;
    return Invalid(index,
                   chunked ? "chunk_size must be positive" : "sliding_window must be positive");
  }
  return Status();
}

bool IsOffloaded(const GroupSpec& spec, const OffloadLayoutConfig& config) {
  return config.rules < EngineRules::kV032 || TakesPart(spec);
}

Status CheckConfig(const OffloadLayoutConfig& config) {
  if (config.groups.empty()) return {StatusCode::kInvalidArgument, "groups must not be empty"};
  if (config.tokens_per_hash <= 0) {
    return {StatusCode::kInvalidArgument, "tokens_per_hash must be positive"};
  }
  if (config.blocks_per_chunk <= 0) {
    return {StatusCode::kInvalidArgument, "blocks_per_chunk must be positive"};
  }
  bool any = false;
  for (size_t i = 0; i < config.groups.size(); ++i) {
    if (!IsOffloaded(config.groups[i], config)) continue;
    any = true;
    if (Status status = CheckGroup(i, config.groups[i], config); !status.ok()) return status;
  }
  if (!any) return {StatusCode::kInvalidArgument, "groups: no group takes part in prefix caching"};
  return Status();
}

OffloadGroup InChunks(size_t index, const OffloadLayoutConfig& config) {
  const GroupSpec& spec = config.groups[index];
  OffloadGroup group;
  group.index = GroupIdx(static_cast<uint32_t>(index));
  group.spec = spec;
  group.tokens_per_block = spec.block_size;
  group.tokens_per_chunk = spec.block_size * config.blocks_per_chunk;
  group.hashes_per_chunk = group.tokens_per_chunk / config.tokens_per_hash;
  group.eagle = spec.eagle;
  group.requires_cow_source = spec.kind == SpecKind::kMamba && spec.mamba_mode == MambaMode::kAlign;
  if (!IsFullKind(spec.kind)) {
    group.window_chunks = CeilDiv(WindowTokens(spec, config), group.tokens_per_chunk);
  }
  return group;
}

// Hits end where a chunk of full attention ends, if all chunks of full attention have one size.
void SetAlignment(std::vector<OffloadGroup>& groups) {
  int64_t full_chunk = 0;
  for (const OffloadGroup& group : groups) {
    if (group.window_chunks) continue;
    if (full_chunk != 0 && full_chunk != group.tokens_per_chunk) return;
    full_chunk = group.tokens_per_chunk;
  }
  for (OffloadGroup& group : groups) {
    if (!group.window_chunks || full_chunk <= group.tokens_per_chunk) continue;
    // If the chunks of the window are not shorter than the full chunk, a load may need every chunk.
    // The comparison is in tokens, without rounding.
    if (*group.window_chunks * group.tokens_per_chunk >= full_chunk) continue;
    group.alignment_chunks = full_chunk / group.tokens_per_chunk;
  }
}

std::optional<int64_t> StoreAlignment(const std::vector<OffloadGroup>& groups) {
  std::optional<int64_t> full;
  int64_t largest = 0;
  for (const OffloadGroup& group : groups) {
    largest = std::max(largest, group.tokens_per_chunk);
    if (group.window_chunks) continue;
    if (full && *full != group.tokens_per_chunk) return std::nullopt;
    full = group.tokens_per_chunk;
  }
  return full ? full : largest;
}

Status CheckRetention(const OffloadLayout& layout) {
  const int64_t interval = layout.retention_interval.value_or(0);
  if (interval < 0) {
    return {StatusCode::kInvalidArgument, "retention_interval must not be negative"};
  }
  for (const OffloadGroup& group : layout.groups) {
    if (!group.window_chunks || interval % group.tokens_per_chunk == 0) continue;
    return Invalid(group.index.value,
                   "retention_interval must be a multiple of the group's tokens per chunk");
  }
  return Status();
}

std::vector<size_t> LookupOrder(const std::vector<OffloadGroup>& groups) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto& left = groups[a].window_chunks;
    const auto& right = groups[b].window_chunks;
    if (!left || !right) return !left && right;
    return *left > *right;
  });
  return order;
}

bool SupportsPartialTail(const OffloadLayoutConfig& config, const OffloadLayout& layout) {
  if (config.blocks_per_chunk != 1 || config.decode_context_parallel != 1) return false;
  bool has_states = false;
  for (const OffloadGroup& group : layout.groups) {
    if (group.eagle && config.rules < EngineRules::kV033) return false;
    if (group.tokens_per_block != layout.groups[0].tokens_per_block) return false;
    if (group.window_chunks && !group.requires_cow_source) return false;
    has_states |= group.requires_cow_source && group.tokens_per_block > config.tokens_per_hash;
  }
  return has_states;
}

}  // namespace

ChunkRange NeededChunks(const OffloadGroup& group, int64_t tokens) {
  const int64_t skipped = std::min(SkippedTokens(group.spec, tokens), tokens);
  const int64_t begin = skipped / group.tokens_per_chunk;
  return {begin, skipped < tokens ? CeilDiv(tokens, group.tokens_per_chunk) : begin};
}

int64_t LoadWindowChunks(const OffloadGroup& group, int64_t tokens) {
  if (!IsWindowKind(group.spec.kind)) return *group.window_chunks;
  const int64_t chunk = group.tokens_per_chunk;
  const int64_t padding = CeilDiv(tokens, chunk) * chunk - tokens;
  const int64_t retained = internal::RetainedWindowTokens(group.spec);
  return std::max(*group.window_chunks, CeilDiv(retained + padding, chunk));
}

bool OffloadLayout::has_windows() const {
  return std::any_of(groups.begin(), groups.end(),
                     [](const OffloadGroup& group) { return group.window_chunks.has_value(); });
}

Result<OffloadLayout> OffloadLayout::Derive(const OffloadLayoutConfig& config) {
  if (Status status = CheckConfig(config); !status.ok()) return status;
  OffloadLayout layout;
  layout.tokens_per_hash = config.tokens_per_hash;
  layout.blocks_per_chunk = config.blocks_per_chunk;
  layout.compatible = config.compatible;
  layout.rules = config.rules;
  layout.configured_groups = std::ssize(config.groups);
  if (config.rules >= EngineRules::kV032) layout.retention_interval = config.retention_interval;
  bool any_eagle = false;
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const GroupSpec& spec = config.groups[i];
    if (!IsOffloaded(spec, config)) continue;
    const OffloadGroup& group = layout.groups.emplace_back(InChunks(i, config));
    any_eagle |= group.eagle;
    if (spec.kind != SpecKind::kMamba || spec.mamba_mode == MambaMode::kNone) continue;
    if (layout.mamba_align_tokens.value_or(group.tokens_per_chunk) != group.tokens_per_chunk) {
      return Invalid(i, "Mamba groups must have one block size");
    }
    layout.mamba_align_tokens = group.tokens_per_chunk;
  }
  if (!any_eagle && config.speculative_eagle && config.rules < EngineRules::kV032) {
    for (OffloadGroup& group : layout.groups) group.eagle = true;
  }
  if (Status status = CheckRetention(layout); !status.ok()) return status;
  SetAlignment(layout.groups);
  layout.store_alignment = StoreAlignment(layout.groups);
  layout.lookup_order = LookupOrder(layout.groups);
  layout.supports_partial_tail = SupportsPartialTail(config, layout);
  for (OffloadGroup& group : layout.groups) {
    const bool drops = layout.supports_partial_tail && group.eagle && !group.requires_cow_source;
    if (drops) group.tail_margin = config.tokens_per_hash;
  }
  return layout;
}

}  // namespace kvcast
