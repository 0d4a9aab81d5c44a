// KV-cache events: the messages that an engine publishes and a router consumes.
//
// There is one struct per event of vLLM's `kv_events.py`. Each struct has the union of the fields
// of all known generations of vLLM and SGLang. A field that a producer does not send is nullopt.
// All structs are plain values that own their data. They are thread-compatible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/extra_key.h"
#include "kvcast/core/ids.h"

namespace kvcast {

// Medium names that known producers send. The set is open: a medium is a string.
inline constexpr char kMediumGpu[] = "GPU";
inline constexpr char kMediumCpu[] = "CPU";
inline constexpr char kMediumStorage[] = "STORAGE";

// Lookahead tokens of a store: for each block, the tokens after the block that the hash of the
// block also covers (lookahead hashes of vLLM 0.33).
struct LookaheadTokens {
  // L, the number of lookahead tokens per block hash. 0 if the store names no block; L is then
  // unknown.
  int64_t width = 0;
  // The lookahead tokens of block i are the elements [i * width, (i + 1) * width).
  std::vector<TokenId> token_ids;

  friend bool operator==(const LookaheadTokens&, const LookaheadTokens&) = default;
};

// Blocks that became reusable.
struct BlockStored {
  // In order of position. The list may be empty. The list may also name fewer blocks than the token
  // span holds (a "sparse" store). Sliding-window and Mamba groups announce only the blocks that
  // they keep.
  std::vector<BlockHash> block_hashes;
  // Hash of the block before the first position of the token span. nullopt: the span starts at the
  // root.
  std::optional<BlockHash> parent_block_hash;
  // All tokens of the span, including the tokens of blocks that the event does not name. nullopt:
  // the producer sent nil. If tokens_per_position is 2 (EAGLE pairs of SGLang), the two tokens of
  // each pair are adjacent elements.
  std::optional<std::vector<TokenId>> token_ids;
  uint8_t tokens_per_position = 1;
  // Tokens per block. 0 in placeholder stores of offloading connectors.
  int64_t block_size = 0;
  std::optional<int64_t> lora_id;
  std::optional<std::string> medium;
  std::optional<std::string> lora_name;
  // One entry per block hash. An entry is nullopt (nil), or the extra keys of that block.
  std::optional<std::vector<std::optional<ExtraKeys>>> extra_keys;
  // The field group_idx of the event. 0 and nullopt are different.
  std::optional<int64_t> group_idx;
  // `full_attention`, `sliding_window`, ... The set is open; see cache_spec.h.
  std::optional<std::string> kv_cache_spec_kind;
  // Window in tokens. Only for sliding-window kinds.
  std::optional<int64_t> kv_cache_spec_sliding_window;
  std::optional<std::string> locality;   // "LOCAL" or "REMOTE"
  std::optional<std::string> ownership;  // identifier of the secondary tier
  std::optional<std::string> session_id;
  std::optional<std::string> cache_salt;  // only SGLang's map events have this field
  // The metadata map of SGLang (the last element of array events), in wire order.
  std::optional<std::vector<std::pair<std::string, ExtraKey>>> metadata;
  // Absolute position of the first token, if the producer sends it (AMD ATOM, map events).
  std::optional<int64_t> token_offset;
  // The field `lookahead_token_ids`, flattened. nullopt: not sent; each hash then covers only its
  // block.
  std::optional<LookaheadTokens> lookahead;

  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

// Returns the cache salt of the blocks: cache_salt, or the salt in SGLang's metadata. Empty: no
// salt. (vLLM sends the salt in extra_keys instead.) The view points into `event`.
inline std::string_view CacheSaltOf(const BlockStored& event) {
  if (event.cache_salt) return *event.cache_salt;
  if (!event.metadata) return {};
  for (const auto& [key, value] : *event.metadata) {
    if (key != "cache_salt") continue;
    const auto* text = std::get_if<std::string>(&value.value);
    return text ? std::string_view(*text) : std::string_view();
  }
  return {};
}

// Blocks that are no longer reusable. Each element of block_hashes means that one physical copy of
// this block left the tier.
struct BlockRemoved {
  std::vector<BlockHash> block_hashes;
  std::optional<std::string> medium;
  std::optional<int64_t> group_idx;
  std::optional<std::string> locality;
  std::optional<std::string> ownership;

  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

// The publisher reset its prefix cache.
struct AllBlocksCleared {
  // The tier that was cleared. nullopt: the producer does not name the tier. vLLM never names the
  // tier: its event means that the GPU pool was reset, and states nothing about other tiers.
  std::optional<std::string> medium;

  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};

using Event = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

// One published batch: all events of one engine step, in order of occurrence.
struct EventBatch {
  double ts = 0;  // wall-clock time of the batch, seconds since the Unix epoch; 0: not known
  std::vector<Event> events;
  std::optional<int64_t> data_parallel_rank;  // nullopt: nil on the wire, or not sent

  friend bool operator==(const EventBatch&, const EventBatch&) = default;
};

}  // namespace kvcast
