// Cache specs: what kind of KV each group of a model keeps, and how the groups share one pool.
//
// Terms and rules follow vLLM's KVCacheSpec / KVCacheConfig. All sizes are in tokens unless a name
// says otherwise.
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

// `kv_cache_spec_kind` of the events.
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
  // One scratch block a request, written in circles: an indexer's tail. Announced by no event.
  kCircularBuffer,
  kUnknown,
};

// "full_attention", ... ; an unknown name parses to kUnknown.
std::string_view SpecKindName(SpecKind kind);
SpecKind ParseSpecKind(std::string_view name);

// Kinds whose prefix is reusable only as a whole: full attention, MLA, sink.
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

// How a Mamba group keeps states: one running state, one per block, or states at aligned step ends.
enum class MambaMode : uint8_t { kNone, kAll, kAlign };

// One KV-cache group. Its index in CacheConfig::groups is its group_idx.
struct GroupSpec {
  SpecKind kind = SpecKind::kFullAttention;
  // With decode context parallel: the tokens that a block covers over all ranks. Hashes, lookup,
  // allocation and every event count in this unit.
  int64_t block_size = 16;
  int64_t sliding_window = 0;  // window kinds: > 0
  int64_t chunk_size = 0;      // chunked local: > 0
  MambaMode mamba_mode = MambaMode::kNone;
  int64_t speculative_blocks = 0;  // Mamba: state blocks for draft tokens
  // Mamba, align: blocks for a state inside the last chunk of a prompt, and the tokens between the
  // chunk's beginning and such a state must be a multiple of the alignment. 0: off.
  int64_t prefill_checkpoint_blocks = 0;
  int64_t prefill_checkpoint_alignment = 0;
  int64_t extra_retained_tokens = 0;  // window kinds with multi-module MTP
  int64_t sink_tokens = 0;            // sink: blocks for these are reserved at start
  // R-SWA (reported as full attention): decode sees the prompt and this many last tokens. 0: off.
  int64_t reference_window = 0;
  bool eagle = false;  // the last hit block must be recomputed for the draft head
  // False: the group takes no part in prefix caching: no events, no lookups, no limit on a hit
  // (scratch groups; windows that are computed again behind a hit, see CacheConfig::replay_tokens).
  bool prefix_cacheable = true;

  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

// Whether the group takes part in prefix caching.
constexpr bool TakesPart(const GroupSpec& group) {
  return group.prefix_cacheable && IsCacheableKind(group.kind);
}

// Whose caching rules apply. Each generation of vLLM has those of the one before, and more.
enum class EngineRules : uint8_t {
  // v0.19 to v0.21: every full block that was computed is cached; freed blocks are taken in the
  // order in which they were freed.
  kV021,
  // main of May 2026 (v0.22): blocks that cannot serve a hit on the alignment grid are not cached.
  kMain2026May,
  // main from June 2026 on: freed blocks that are not cached are taken before any cached one; the
  // end of a prompt is cached inside its block.
  kMain2026August,
  // v0.32: a group that drops a block for its draft head sees every hashed block of the prompt (see
  // EagleLimit), and the cache keeps the prefixes that such a lookup can reach. Stands for v0.29 to
  // v0.31 too, but for EagleLimit.
  kV032,
  // v0.33: with lookahead hashes no group drops a block.
  kV033,
};

// "v0.21", "2026-05", "2026-08", "v0.32", "v0.33".
std::string_view EngineRulesName(EngineRules rules);
std::optional<EngineRules> ParseEngineRules(std::string_view name);
// All of them, quoted, as errors list them.
std::string EngineRulesNames();

// The cache of one engine: groups that share one pool of blocks.
struct CacheConfig {
  std::vector<GroupSpec> groups;
  int64_t num_blocks = 0;  // block 0, the null block, included
  int64_t max_model_len = 131072;
  // Tokens that may be scheduled but not processed yet; enters the admission cap of window groups.
  int64_t max_in_flight_tokens = 8192;
  int64_t max_encoder_tokens = 0;  // of one request; cross attention
  // Tokens per hash. 0: greatest common divisor of the block sizes of the groups that take part in
  // prefix caching.
  int64_t hash_block_size = 0;
  // Alignment of hits and of what is cached. 0: least common multiple of the block sizes.
  int64_t scheduler_block_size = 0;
  bool enable_caching = true;
  // Draft tokens of multi-module MTP: the last mtp_lookahead_tokens - 1 computed tokens may be
  // prefilled again and are not cached yet.
  int64_t mtp_lookahead_tokens = 0;
  // prefix_cache_retention_interval: nullopt keeps every block of a window that may serve a hit
  // (dense); 0 keeps replay boundaries only; r > 0 also one boundary every r tokens.
  std::optional<int64_t> retention_interval;
  EngineRules rules = EngineRules::kV033;
  // Bounded replay: the last so many tokens of a hit are computed again, for window groups outside
  // prefix caching, and a hit of no more than these is none. 0: off.
  int64_t replay_tokens = 0;
  // How the chain is hashed. With lookahead no group may drop a block.
  ChainForm chain_form;
  // Mamba states are also kept where a prompt parts from the prefix that others share
  // (enable_mamba_shared_prefix_checkpoint): PrefixHit::shared_prefix_boundary.
  bool mamba_shared_prefix_checkpoint = false;
  // Ranks that share the tokens of a request. More than 1: full attention and Mamba groups only.
  int64_t decode_context_parallel = 1;
  // Attention kernels may read slots that were never written: CacheManager::TakeBlocksToZero says
  // which blocks to clear.
  bool zero_new_blocks = false;
  double watermark = 0;  // share of the pool kept free when a waiting request is admitted
};

// Checks `config`, fills in what 0 stands for, and sets `eagle` in all groups whose specs equal
// that of an EAGLE group: equal groups are looked up together. Every error names the field.
Result<CacheConfig> ValidateCacheConfig(CacheConfig config);

// True if hits may end inside a block: a Mamba group keeps states at aligned step ends in blocks
// larger than the hash unit (of one unit too with decode context parallel, where the blocks of
// attention are larger), and every other group can look up at hash units or has blocks of one unit.
// REQUIRES: a validated config.
bool PartialHitsEnabled(const CacheConfig& config);

// Grid of hit lengths in tokens: the hash unit with partial hits, else scheduler_block_size.
// REQUIRES: a validated config.
int64_t HitAlignment(const CacheConfig& config);

// How far a lookup looks for the unit behind a hit that a group with a draft head gives up, in
// tokens. A lookup of several groups looks at all `hashed_tokens` of the prompt from v0.32 on;
// every other one at those of the longest hit, `max_tokens`. `groups`: of the cache, those that
// take no part included.
constexpr int64_t EagleLimit(EngineRules rules, size_t groups, int64_t max_tokens,
                             int64_t hashed_tokens) {
  if (rules < EngineRules::kV032 || groups < 2 || hashed_tokens < max_tokens) return max_tokens;
  return hashed_tokens;
}

// Blocks that one sequence of `group` can hold at a time, or nullopt where that grows with the
// sequence: window cdiv(min(W-1+X+I, L), bs)+1, chunked cdiv(min(C+I, L), bs). One formula for
// start-up sizing and for the run-time admission gate.
std::optional<int64_t> MaxAdmissionBlocks(const GroupSpec& group, int64_t max_model_len,
                                          int64_t max_in_flight_tokens);

// What bounds one request, in tokens.
struct RequestLimits {
  int64_t max_model_len = 0;
  int64_t max_in_flight_tokens = 0;
  int64_t max_encoder_tokens = 0;
};
RequestLimits LimitsOf(const CacheConfig& config);

// The most blocks of `group` that one request holds at a time: MaxAdmissionBlocks where there is
// one, else
//   full attention   cdiv(L, bs)
//   Mamba            all: cdiv(L, bs) + S; align: 2 + S + prefill checkpoints; none: as all, which
//   is 1 + S for the block
//                    of max_model_len tokens that this mode has
//   cross attention  cdiv(encoder tokens, bs)
//   encoder only     0
//   circular buffer  1
// REQUIRES: block_size > 0, and no length above 2^31.
int64_t MaxBlocksPerRequest(const GroupSpec& group, const RequestLimits& limits);

// Sum of MaxBlocksPerRequest over the groups. REQUIRES: a validated config.
int64_t MaxBlocksPerRequest(const CacheConfig& config);

// Blocks that no request can use: the null block and those of attention sinks.
int64_t ReservedBlocks(const CacheConfig& config);

// What a request holds beyond MaxBlocksPerRequest where prefixes may end inside a block: a cached
// block and its copy are held together until the copy has run, in each group that shares such
// blocks. REQUIRES: a validated config.
int64_t MaxCopyBlocks(const CacheConfig& config);

// The smallest num_blocks with which a request of `total_tokens`, running alone, always gets its
// next step. REQUIRES: a validated config; lengths from 0 to 2^31.
int64_t RequiredBlocks(const CacheConfig& config, int64_t total_tokens, int64_t encoder_tokens);

// Leading tokens of a computed prefix of n tokens that attention will never read again.
int64_t SkippedTokens(const GroupSpec& group, int64_t computed_tokens);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace kvcast
