// Cache specs: the kind of KV state that each KV-cache group of a model keeps, and the
// configuration of the block pool that all groups share.
//
// Terms and rules follow vLLM's KVCacheSpec and KVCacheConfig. All sizes are in tokens unless a
// name contains another unit. All types are plain values. All functions are pure and thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast {

// Kind of a group: the field `kv_cache_spec_kind` of the events.
enum class SpecKind : uint8_t {
  kFullAttention,
  kMlaAttention,
  kSinkFullAttention,
  kSlidingWindow,
  kSlidingWindowMla,
  kChunkedLocalAttention,
  kMamba,
  kEncoderOnlyAttention,
  kCrossAttention,
  // One scratch block per request, used as a circular buffer, for example by the indexer of a
  // sparse-attention layer. No event names such a group.
  kCircularBuffer,
  kUnknown,
};

// Name and parser: "full_attention", ... ParseSpecKind returns kUnknown for an unknown name.
std::string_view SpecKindName(SpecKind kind);
SpecKind ParseSpecKind(std::string_view name);

// True for the kinds that need every block of a prefix: full attention, MLA, sink.
constexpr bool IsFullKind(SpecKind kind) {
  return kind == SpecKind::kFullAttention || kind == SpecKind::kMlaAttention ||
         kind == SpecKind::kSinkFullAttention;
}
constexpr bool IsWindowKind(SpecKind kind) {
  return kind == SpecKind::kSlidingWindow || kind == SpecKind::kSlidingWindowMla;
}
// False for kinds that never take part in prefix caching.
constexpr bool IsCacheableKind(SpecKind kind) {
  return IsFullKind(kind) || IsWindowKind(kind) || kind == SpecKind::kChunkedLocalAttention ||
         kind == SpecKind::kMamba;
}

// The states that a Mamba group keeps: one running state (kNone), one state per block (kAll), or
// states at aligned step ends (kAlign).
enum class MambaMode : uint8_t { kNone, kAll, kAlign };

// One KV-cache group. Its index in CacheConfig::groups is its group_idx.
struct GroupSpec {
  SpecKind kind = SpecKind::kFullAttention;
  // Tokens per block. With decode context parallel, this is the number of tokens that a block
  // covers over all ranks. Hashes, lookups, allocations and events use this size.
  int64_t block_size = 16;
  int64_t sliding_window = 0;  // window kinds: > 0
  int64_t chunk_size = 0;      // chunked local: > 0
  MambaMode mamba_mode = MambaMode::kNone;
  int64_t speculative_blocks = 0;  // Mamba: state blocks for draft tokens
  // Mamba, kAlign: number of blocks (0 or 1) for a state inside the last prefill chunk of a prompt.
  // 0: off. The distance from the start of the chunk to such a state must be a multiple of
  // prefill_checkpoint_alignment tokens.
  int64_t prefill_checkpoint_blocks = 0;
  int64_t prefill_checkpoint_alignment = 0;
  // Window kinds, with multi-module MTP: number of kept tokens before the window.
  int64_t extra_retained_tokens = 0;
  int64_t sink_tokens = 0;  // sink kind: blocks for these tokens are reserved at start
  // Reference window (R-SWA): a decode step reads the prompt and the last reference_window tokens.
  // Events report such a group as full attention. 0: off.
  int64_t reference_window = 0;
  // The group has a draft head, which requires that the last block of a hit is computed again.
  bool eagle = false;
  // False: the group takes no part in prefix caching. It has no events and no lookups, and does not
  // limit a hit. Examples are scratch groups, and windows that are computed again after a hit (see
  // CacheConfig::replay_tokens).
  bool prefix_cacheable = true;

  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

// True if the group takes part in prefix caching.
constexpr bool TakesPart(const GroupSpec& group) {
  return group.prefix_cacheable && IsCacheableKind(group.kind);
}

// The generation of vLLM that defines the caching rules. Each generation has the rules of the
// previous generation and the additional rules that are listed here.
enum class EngineRules : uint8_t {
  // v0.19 to v0.21. Every full block that was computed is cached. Freed blocks are allocated in the
  // order in which they were freed.
  kV021,
  // vLLM main of May 2026 (v0.22). Blocks that cannot serve a hit on the alignment grid are not
  // cached.
  kMain2026May,
  // vLLM main from June 2026 on. Freed blocks that are not cached are allocated before freed blocks
  // that are cached. If a prompt ends inside a block, the end of the prompt is cached too.
  kMain2026August,
  // v0.32. If a group drops a block for its draft head, the lookup of the group covers every hashed
  // block of the prompt (see EagleLimit). The cache keeps the prefixes that such a lookup can
  // reach. The rules of v0.29 to v0.31 differ from this value only in EagleLimit.
  kV032,
  // v0.33. With lookahead hashes, no group drops a block. Mamba groups in mode kAlign release every
  // state that no step reads again, also while steps are in flight, and demand only the blocks that
  // a step takes.
  kV033,
};

// Name and parser: "v0.21", "2026-05", "2026-08", "v0.32", "v0.33". ParseEngineRules returns
// nullopt for any other name.
std::string_view EngineRulesName(EngineRules rules);
std::optional<EngineRules> ParseEngineRules(std::string_view name);
// All names, quoted and separated by commas, for error messages.
std::string EngineRulesNames();

// The cache configuration of one engine: its groups, which share one pool of blocks.
struct CacheConfig {
  std::vector<GroupSpec> groups;
  int64_t num_blocks = 0;  // including block 0, the null block
  int64_t max_model_len = 131072;
  // Maximum number of tokens that are scheduled but not processed yet. Part of the admission limit
  // of window groups and of chunked-local groups (see MaxAdmissionBlocks).
  int64_t max_in_flight_tokens = 8192;
  int64_t max_encoder_tokens = 0;  // per request; cross attention only
  // Tokens per block hash. 0: the greatest common divisor of the block sizes of the groups that
  // take part in prefix caching, or of all groups if no group takes part. Exception: with
  // enable_caching off, or with a Mamba group that is not in mode kAlign, 0 means the least common
  // multiple of all block sizes.
  int64_t hash_block_size = 0;
  // Alignment of hits and of cached prefixes, in tokens. 0: the least common multiple of all block
  // sizes.
  int64_t scheduler_block_size = 0;
  bool enable_caching = true;
  // Draft tokens of multi-module MTP. The last mtp_lookahead_tokens - 1 computed tokens may be
  // prefilled again; they are not cached yet.
  int64_t mtp_lookahead_tokens = 0;
  // prefix_cache_retention_interval. nullopt: the cache keeps every block of a window that may
  // serve a hit (dense retention). 0: it keeps only the blocks that a hit at a replay boundary
  // needs. Replay boundaries are the end of the prompt and PrefixHit::shared_prefix_boundary. If
  // the value is above 0, the cache also keeps the blocks that a hit at a multiple of the value
  // needs.
  std::optional<int64_t> retention_interval;
  EngineRules rules = EngineRules::kV033;
  // Bounded replay, for window groups outside prefix caching. The engine computes the last
  // replay_tokens tokens of a hit again. A hit of at most replay_tokens tokens counts as no hit. 0:
  // off.
  int64_t replay_tokens = 0;
  // The form of the hash chain. With lookahead, no group may have `eagle`.
  ChainForm chain_form;
  // True: Mamba states are also kept at the position where a prompt diverges from a prefix that
  // other prompts share (enable_mamba_shared_prefix_checkpoint). See
  // PrefixHit::shared_prefix_boundary.
  bool mamba_shared_prefix_checkpoint = false;
  // Number of ranks that share the tokens of a request. A value above 1 is valid only with
  // full-attention and Mamba groups.
  int64_t decode_context_parallel = 1;
  // True: attention kernels may read slots that were never written. The engine must then zero the
  // blocks that CacheManager::TakeBlocksToZero returns.
  bool zero_new_blocks = false;
  // Share of the pool that stays free when a waiting request is admitted. At least 0, below 1.
  double watermark = 0;
};

// Validates `config` and replaces each 0 that stands for a default. If one group is an EAGLE group,
// the result has `eagle` set in all groups with an equal spec, because equal groups are looked up
// together. Error: kInvalidArgument; the message names the field.
Result<CacheConfig> ValidateCacheConfig(CacheConfig config);

// True if a hit may end inside a block. All of these conditions must hold:
// - Caching is on, there are several groups, and the rules are kMain2026August or later.
// - A Mamba group keeps states at aligned step ends, in blocks larger than the hash unit. With
//   decode context parallel, blocks of one hash unit are also sufficient.
// - Every other group that takes part in prefix caching is of a full kind, is a Mamba group, or has
//   blocks of one hash unit.
//
// REQUIRES: a validated config.
bool PartialHitsEnabled(const CacheConfig& config);

// The grid of hit lengths, in tokens. One group: its block size. Several groups: hash_block_size
// with partial hits, else scheduler_block_size. REQUIRES: a validated config.
int64_t HitAlignment(const CacheConfig& config);

// A group with a draft head must also hold the tokens after its hit that the draft head requires:
// one block, or one step of HitAlignment if this step is smaller. These tokens are computed again.
// The result is the limit, in tokens, up to which a lookup searches for these tokens. From v0.32
// on, a lookup over several groups searches up to `hashed_tokens`, the number of tokens of the
// prompt that its hashes cover, if this number is at least `max_tokens`. All other lookups search
// up to `max_tokens`, the longest possible hit. `groups`: the number of groups of the cache,
// including groups that take no part in prefix caching.
constexpr int64_t EagleLimit(EngineRules rules, size_t groups, int64_t max_tokens,
                             int64_t hashed_tokens) {
  if (rules < EngineRules::kV032 || groups < 2 || hashed_tokens < max_tokens) return max_tokens;
  return hashed_tokens;
}

// The maximum number of blocks that one sequence holds in `group` at a time. nullopt: there is no
// cap for the kind. Start-up sizing and run-time admission use this formula, with W =
// sliding_window, X = extra_retained_tokens, C = chunk_size, I = max_in_flight_tokens, L =
// max_model_len and bs = block_size:
//
//   window kinds    cdiv(min(W-1+X+I, L), bs) + 1
//   chunked local   cdiv(min(C+I, L), bs)
std::optional<int64_t> MaxAdmissionBlocks(const GroupSpec& group, int64_t max_model_len,
                                          int64_t max_in_flight_tokens);

// Limits of one request, in tokens.
struct RequestLimits {
  int64_t max_model_len = 0;
  int64_t max_in_flight_tokens = 0;
  int64_t max_encoder_tokens = 0;
};
RequestLimits LimitsOf(const CacheConfig& config);

// The maximum number of blocks of `group` that one request holds at a time. This is
// MaxAdmissionBlocks if it has a value, else (with S = speculative_blocks):
//
//   full attention   cdiv(L, bs)
//   Mamba, kAll      cdiv(L, bs) + S
//   Mamba, kAlign    2 + S + prefill checkpoint blocks
//   Mamba, kNone     as kAll; the number is 1 + S, because vLLM sets bs = L in this mode
//   cross attention  cdiv(encoder tokens, bs)
//   encoder only     0
//   circular buffer  1
//
// REQUIRES: block_size > 0, and no length above 2^31.
int64_t MaxBlocksPerRequest(const GroupSpec& group, const RequestLimits& limits);

// The sum of MaxBlocksPerRequest over all groups. REQUIRES: a validated config.
int64_t MaxBlocksPerRequest(const CacheConfig& config);

// The number of blocks that no request can use: the null block and the blocks of attention sinks.
int64_t ReservedBlocks(const CacheConfig& config);

// The number of blocks that a request may hold beyond MaxBlocksPerRequest. If prefixes may end
// inside a block, a request holds two blocks until its copy has run: the cached block and the copy.
// The request holds both blocks in each group that shares such blocks. REQUIRES: a validated
// config.
int64_t MaxCopyBlocks(const CacheConfig& config);

// The smallest num_blocks with which a request of `total_tokens` tokens can run every step, if it
// runs alone. REQUIRES: a validated config; lengths from 0 to 2^31.
int64_t RequiredBlocks(const CacheConfig& config, int64_t total_tokens, int64_t encoder_tokens);

// The number of leading tokens that attention will not read again, after `computed_tokens` tokens
// were computed. REQUIRES: chunk_size > 0 for chunked local attention.
int64_t SkippedTokens(const GroupSpec& group, int64_t computed_tokens);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace kvcast
