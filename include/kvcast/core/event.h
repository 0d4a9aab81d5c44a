// KV-cache events: what engines publish and routers consume.
//
// One struct per event of vLLM's `kv_events.py`, with the union of the fields of all known
// generations of vLLM and SGLang. A field that a producer does not send is nullopt. These are plain
// values: they own their data and have no threads of their own.
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

// Media seen on the wire. The set is open: a medium is a string.
inline constexpr char kMediumGpu[] = "GPU";
inline constexpr char kMediumCpu[] = "CPU";
inline constexpr char kMediumStorage[] = "STORAGE";

// Tokens behind blocks that their hashes cover too (vLLM 0.33, lookahead hashes).
struct LookaheadTokens {
  // Tokens per block hash: L. 0 where the store names no block, so that its width is not known.
  int64_t width = 0;
  // The tokens behind block i are [i * width, (i + 1) * width).
  std::vector<TokenId> token_ids;

  friend bool operator==(const LookaheadTokens&, const LookaheadTokens&) = default;
};

// Blocks whose KV became reusable.
struct BlockStored {
  // In order of position. May be empty, and may be fewer than the token span holds ("sparse"):
  // sliding-window and Mamba groups announce only the blocks they keep.
  std::vector<BlockHash> block_hashes;
  // Hash of the block before the first position of the token span; nullopt at the root.
  std::optional<BlockHash> parent_block_hash;
  // All tokens of the span, those of unannounced blocks included. nullopt where the producer sent
  // nil. With tokens_per_position 2 (EAGLE pairs of SGLang) the pairs are flattened.
  std::optional<std::vector<TokenId>> token_ids;
  uint8_t tokens_per_position = 1;
  // Tokens per block. 0 on placeholder stores of offloading connectors.
  int64_t block_size = 0;
  std::optional<int64_t> lora_id;
  std::optional<std::string> medium;
  std::optional<std::string> lora_name;
  // One entry per block hash; an entry is nullopt (nil) or the block's extra keys.
  std::optional<std::vector<std::optional<ExtraKeys>>> extra_keys;
  // The wire's group_idx. 0 and absent differ.
  std::optional<int64_t> group_idx;
  // `full_attention`, `sliding_window`, ...: an open set, see cache_spec.h.
  std::optional<std::string> kv_cache_spec_kind;
  // Window in tokens, sliding-window kinds only.
  std::optional<int64_t> kv_cache_spec_sliding_window;
  std::optional<std::string> locality;   // "LOCAL" / "REMOTE"
  std::optional<std::string> ownership;  // secondary-tier identifier
  std::optional<std::string> session_id;
  std::optional<std::string> cache_salt;  // SGLang maps
  // SGLang's metadata map (the trailing element of array events), in wire order.
  std::optional<std::vector<std::pair<std::string, ExtraKey>>> metadata;
  // Absolute position of the first token, where a producer sends it (AMD ATOM, map events).
  std::optional<int64_t> token_offset;
  // `lookahead_token_ids`, flattened. nullopt: not sent, the hashes cover their blocks alone.
  std::optional<LookaheadTokens> lookahead;

  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

// The cache salt of the blocks, from cache_salt or SGLang's metadata; empty: none. (vLLM puts it
// into extra_keys instead.) Borrowed from the event.
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

// Blocks that can no longer be reused: one physical copy per hash left the tier.
struct BlockRemoved {
  std::vector<BlockHash> block_hashes;
  std::optional<std::string> medium;
  std::optional<int64_t> group_idx;
  std::optional<std::string> locality;
  std::optional<std::string> ownership;

  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

// The prefix cache of the publisher was reset.
struct AllBlocksCleared {
  // The tier that was cleared, where the producer says so. vLLM does not: its GPU pool was reset,
  // and nothing is said of other tiers.
  std::optional<std::string> medium;

  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};

using Event = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

// One published batch: everything that happened in one engine step, in order of occurrence.
struct EventBatch {
  double ts = 0;  // wall clock, seconds since the epoch, when the batch was built
  std::vector<Event> events;
  std::optional<int64_t> data_parallel_rank;  // nullopt: nil on the wire, or not sent

  friend bool operator==(const EventBatch&, const EventBatch&) = default;
};

}  // namespace kvcast
