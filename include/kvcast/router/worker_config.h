// WorkerConfig: the registered properties of a worker of a PrefixIndex.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// Limits. AddWorker refuses a worker that exceeds a limit. An event that exceeds a limit counts as
// bad (IndexCounters::bad_events).
inline constexpr size_t kMaxIndexWorkers = 65535;  // per shard
inline constexpr int64_t kMaxGroups = 64;          // per worker
inline constexpr int64_t kMaxBlockSize = 1 << 20;  // tokens
inline constexpr int64_t kMaxBlocksPerChunk = 1 << 12;
inline constexpr int64_t kMaxWindow = int64_t{1} << 40;  // tokens, for windows and chunks

// How the index reads a store that repeats a stored prefix. With `kv_cache_report_mode` "full",
// vLLM reports a hit as a store of the whole prefix, including window blocks that vLLM has already
// evicted. The event of a report is equal to the event of a store of second copies.
enum class HitReports : uint8_t {
  // The index counts the blocks of the store as copies. The worker's answers are then not certain.
  kUnknown,
  // The store is a report. The index does not apply the store.
  kExpected,
  // Stores are copies.
  kNever,
};

// How an engine looks up blocks on lower tiers, after its own hit on the GPU.
enum class OffloadRule : uint8_t {
  // vLLM's offloading connector. The lookup works in chunks. Every group needs its chunks on the
  // lower tier. A full-attention group needs all chunks, a window group the last chunks, and a
  // Mamba group the last chunk.
  kConnector,
  // OffloadScheduler with OffloadLayoutConfig::compatible = false. A window needs only the chunks
  // that a load reads.
  kOffloadScheduler,
  // A host pool with the same groups and blocks as the GPU (vLLM's simple KV offload;
  // SimpleOffload). From the end of the GPU hit on, the engine runs its own lookup over the blocks
  // of the lower tier.
  kMirroredPool,
};

// The rule that decides which blocks of a window group the engine caches. A sparse store names
// fewer blocks than its tokens fill. With this rule, the index can often prove the positions of
// these blocks. Without this rule, the index finds the position of a hash only if another event
// names the hash.
struct SparseRule {
  // Must equal CacheConfig::rules of the engine (the defaults differ).
  EngineRules rules = EngineRules::kMain2026August;
  int64_t alignment = 0;                      // scheduler_block_size, tokens; > 0
  std::optional<int64_t> retention_interval;  // see CacheConfig::retention_interval
};

// The registered properties of a worker. The index also learns groups from the events of the
// worker.
struct WorkerConfig {
  std::string name;
  // Groups by group_idx. Empty: the index learns kind, window and block size from the events.
  std::vector<GroupSpec> groups;
  // Tokens per block hash. 0: the greatest common divisor of the known block sizes.
  int64_t hash_block_size = 0;
  // Hit lengths are multiples of this number of tokens: the engine's scheduler_block_size, or its
  // hash_block_size if partial hits are on. 0: the index applies vLLM's rule to the known groups.
  // The rule gives the least common multiple of the block sizes. Exception: if a Mamba group has
  // blocks larger than the hash unit, all groups with larger blocks are full-attention or Mamba
  // groups, and `rules` is nullopt or not below kMain2026August, the rule gives hash_block_size.
  int64_t alignment = 0;
  // Number of blocks of a group that the offloading connector moves as one chunk. On a lower tier,
  // the hash of the last block of a chunk names the chunk.
  int64_t blocks_per_chunk = 1;
  // nullopt: not known; the index uses kConnector. If offload_rule has a value, the index treats
  // blocks_per_chunk as known too.
  std::optional<OffloadRule> offload_rule;
  HitReports hit_reports = HitReports::kUnknown;
  // Properties of learned groups that no event carries. nullopt and 0: not known.
  // eagle: true if a group drops a block for a draft head (EAGLE, or MTP without lookahead hashes).
  // The index uses the value for all learned groups.
  // chunk_size: the chunk of chunked local attention, in tokens. A group whose block size does not
  // divide chunk_size has an unknown chunk size.
  std::optional<bool> eagle;
  int64_t chunk_size = 0;
  // The caching rules of the engine's release. nullopt: the index uses the rules of LearnRules. If
  // LearnRules was not called, the index uses the rules that give the shortest reusable prefixes.
  std::optional<EngineRules> rules;
  // Number of tokens after a block that its hash also covers. If this number is more than 0, no
  // group drops a block for its draft head. The chain of a query then ends at the last block with
  // this number of tokens after it. If stores on the GPU show another number, the index uses that
  // number, and the worker has UnknownProperty::kConflict. 0: not known, or no such tokens.
  int64_t hash_lookahead_tokens = 0;
  // vLLM's bounded replay of windows; see CacheConfig::replay_tokens. nullopt: the index assumes 0.
  std::optional<int64_t> replay_tokens;
  std::optional<SparseRule> sparse_rule;  // nullopt: not known
  // True: the parent hash 0 means the root, unless the worker holds a block with this hash
  // (LMCache, Mooncake).
  bool zero_parent_is_root = false;
  // True: a store of a block that the group already holds in the tier adds no second copy, and one
  // remove deletes the block (SGLang with HiCache, LMCache). False: every store adds a copy, as in
  // vLLM.
  bool repeats_are_refreshes = false;
  // True: the index keeps digests of the blocks that the worker holds; see PrefixIndex::Digests.
  bool digests = false;
};

}  // namespace kvcast
