// Offload rules: pure functions that decide which prefix of a request can be loaded from the tiers
// below the GPU (host memory and storage), and which chunks are stored there.
//
// The rules are those of vLLM's offloading connector. A chunk is blocks_per_chunk blocks of one
// group under one key. Full attention needs every chunk of a prefix; a window needs the last few.
// All groups must be able to load the same prefix. The engine's scheduler and the router's index
// use the same functions. All functions are thread-safe if the callbacks are thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// Answer for one chunk.
enum class LookupResult : uint8_t {
  kMiss,
  // The chunk can be loaded.
  kHit,
  // The chunk is present, but its bytes are not readable yet.
  kPending,
  // Not known yet: the caller must repeat the lookup. Only tiers below host memory give this
  // answer.
  kRetry,
};

// One group, with sizes in chunks.
struct OffloadGroup {
  GroupIdx index;  // in OffloadLayoutConfig::groups; keys and events use this index
  int64_t tokens_per_block = 0;
  int64_t tokens_per_chunk = 0;
  int64_t hashes_per_chunk = 0;
  // A load of a prefix needs this number of chunks at the end of the prefix. nullopt: all chunks of
  // the prefix (full kinds).
  std::optional<int64_t> window_chunks;
  // Loads end at multiples of this number of chunks. Chunks that are far from such an end need not
  // be stored. nullopt: every chunk of the group may be needed.
  std::optional<int64_t> alignment_chunks;
  // The group has a draft head, which requires that the last chunk of a hit is computed again.
  bool eagle = false;
  // True for Mamba groups in kAlign mode: the group keeps states at step ends, each in a block of
  // its own.
  bool requires_cow_source = false;
  // Number of tokens after the end of a prefix that the hash of the prefix also covers, because a
  // draft head reads them. The margin applies to a prefix that ends inside a block: the prefix of n
  // tokens is stored under the hash of n + tail_margin tokens. 0 unless supports_partial_tail.
  int64_t tail_margin = 0;
  GroupSpec spec;  // as configured

  friend bool operator==(const OffloadGroup&, const OffloadGroup&) = default;
};

// Input of OffloadLayout::Derive.
struct OffloadLayoutConfig {
  std::vector<GroupSpec> groups;
  int64_t tokens_per_hash = 16;  // every block size is a multiple of it
  int64_t blocks_per_chunk = 1;
  // True, with rules before v0.32: if no group has `eagle` set, all groups are EAGLE groups.
  // Ignored from v0.32 on.
  bool speculative_eagle = false;
  // Block sizes already count the tokens of all ranks (GroupSpec::block_size). A value above 1 only
  // disables prefixes that end inside a block.
  int64_t decode_context_parallel = 1;
  // True: the lookup gives the results of vLLM's connector. They differ from the results with false
  // in these known points:
  // - A window needs window_chunks chunks at every prefix end. If the prefix ends inside a chunk of
  //   the window group and the groups have several chunk sizes, this number is one too small. The
  //   hit may then not be loadable. If a window is one token longer than whole chunks, the number
  //   is one too large.
  // - If a prefix end inside a block is pending in one group, the lookup waits, although a group
  //   that is queried later lacks this end.
  // - Rules before v0.32: a group of a full kind with a draft head drops one chunk, although the
  //   lookup does not query the chunk after the prefix. The group drops a second chunk if pending
  //   chunks restart the lookup.
  //
  // False: a prefix needs exactly the chunks that its load reads. The lookup waits only for blocks
  // that every group has or will have.
  bool compatible = false;
  // The vLLM release of the connector. Differences from v0.32 on:
  // - Groups outside prefix caching (see TakesPart) are not part of the layout.
  // - Every group with a draft head is queried for one chunk after the prefix. Before v0.32, if
  //   `compatible` is true, only windows are queried for this chunk.
  // - If `compatible` is true, a window also keeps its extra_retained_tokens. At a prefix that ends
  //   inside a chunk, the window needs LoadWindowChunks chunks. The lookup waits for a pending
  //   chunk only if the chunk is in the window that the lookup found.
  // - FillStoreMask decides which chunks of a window are stored.
  EngineRules rules = EngineRules::kMain2026August;
  // CacheConfig::retention_interval, for the chunks of windows. No effect before v0.32.
  std::optional<int64_t> retention_interval;
};

// The groups of an engine in chunks, and the properties that a lookup needs.
struct OffloadLayout {
  std::vector<OffloadGroup> groups;  // the offloaded groups, in the order of the config
  int64_t configured_groups = 0;
  int64_t tokens_per_hash = 0;
  int64_t blocks_per_chunk = 0;
  // Indices into `groups`: full kinds in the order of the config, then windows, the window with the
  // most chunks first.
  std::vector<size_t> lookup_order;
  std::optional<int64_t> mamba_align_tokens;  // prefixes end at multiples of this number
  // True: prefixes may end inside a block, at a hash unit. With draft heads, this is possible only
  // from v0.33 on.
  bool supports_partial_tail = false;
  bool compatible = false;  // as configured
  EngineRules rules = EngineRules::kMain2026August;
  std::optional<int64_t> retention_interval;
  // Tokens per chunk of full attention, or of the largest chunk if there is no full attention.
  // nullopt: full-attention groups have chunks of several sizes.
  std::optional<int64_t> store_alignment;

  bool has_windows() const;

  // Error: kInvalidArgument; the message names the field. Causes: no group, a size that is not
  // positive, a block size that is not a multiple of tokens_per_hash, Mamba groups with different
  // block sizes, a kind that is not cached. From v0.32 on, groups outside prefix caching are not
  // checked, and there are two more causes: no group takes part in prefix caching;
  // retention_interval is negative, or is not a multiple of tokens_per_chunk of every group with
  // window_chunks.
  static Result<OffloadLayout> Derive(const OffloadLayoutConfig& config);
};

// The chunks [begin, end) of one group.
struct ChunkRange {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};
// The chunks that a load of the first `tokens` tokens reads: all chunks with a token that attention
// can still read. Empty if attention reads none.
ChunkRange NeededChunks(const OffloadGroup& group, int64_t tokens);

// The number of chunks that a window needs before a prefix end at `tokens` tokens, as vLLM counts
// from v0.32 on. The result is at least window_chunks. If the prefix ends inside a chunk, the
// result may be larger, because the part of this chunk after the prefix end counts too. REQUIRES:
// group.window_chunks has a value.
int64_t LoadWindowChunks(const OffloadGroup& group, int64_t tokens);

// Returns the state of chunk 0, 1, ... of one group.
using ChunkAnswer = std::function<LookupResult(int64_t chunk)>;

// The number of leading chunks of [0, chunks) that are present. nullopt: a chunk is pending, or not
// known yet. kRetry does not end the scan. One scan therefore requests all chunks up to the first
// miss from the lower tier.
std::optional<int64_t> ScanPrefix(int64_t chunks, const ChunkAnswer& answer);
// The end of the last run of `required` present chunks. If no such run exists: the length of the
// run of present chunks at the start of the range. This run is usable, because the caller has the
// chunks before the range. nullopt: a chunk that the scan queried is pending, or not known yet.
std::optional<int64_t> ScanWindow(int64_t chunks, int64_t required, const ChunkAnswer& answer);

// The same as ScanWindow, by the rules from v0.32 on: a run that ends with the last chunk needs
// `required_at_end` chunks. A pending chunk gives nullopt only if it is in the run that was found;
// kRetry always gives nullopt.
std::optional<int64_t> ScanLoadWindow(int64_t chunks, int64_t required, int64_t required_at_end,
                                      const ChunkAnswer& answer);

// The sizes of the request of a lookup.
struct OffloadQuestion {
  int64_t num_tokens = 0;     // tokens of the request
  int64_t prompt_tokens = 0;  // tokens of its prompt
  int64_t local_tokens = 0;   // leading tokens that the GPU already holds
  int64_t num_hashes = 0;     // complete hash units of the request
  // Maximum number of tokens to load. If this limit shortens the prefix, the last complete chunk of
  // the shorter prefix ends at a position where a chunk of every group ends. nullopt: no limit.
  std::optional<int64_t> max_load_tokens;
};

// Callbacks that return the state of the chunks of one request. `group` is an index into
// OffloadLayout::groups.
struct OffloadAnswers {
  std::function<LookupResult(size_t group, int64_t chunk)> chunk;
  // The result for the block, or the Mamba state, that is stored under the hash of the first
  // `tokens` tokens. `tokens` is a prefix end inside a block, plus the group's tail_margin. Empty
  // function: every answer is kMiss.
  std::function<LookupResult(size_t group, int64_t tokens)> tail;
  // True if another request currently loads this chunk. Empty function: always false.
  std::function<bool(size_t group, int64_t chunk)> being_loaded;
};

// Result of a lookup.
struct OffloadAnswer {
  // Tokens to load after local_tokens. nullopt: pending; the caller must repeat the lookup.
  std::optional<int64_t> tokens;
  // The prefix end in tokens, if it is inside a block.
  std::optional<int64_t> tail_boundary;
};

// Returns the longest prefix that all groups can load together. If all groups are of full kinds,
// the prefix may be the whole request; the engine then computes the last token again. REQUIRES:
// counts >= 0, local_tokens <= num_tokens.
OffloadAnswer LookupOffloaded(const OffloadLayout& layout, const OffloadQuestion& question,
                              const OffloadAnswers& answers);

// The first chunk of a request that a lookup with a hit of `hit_chunks` chunks uses. A window does
// not need the earlier chunks, so their position in the eviction order must not change.
int64_t FirstTouchedChunk(const OffloadGroup& group, int64_t hit_chunks);

// True if a load can need this chunk of a window group when `storable` chunks are stored.
bool StoreReachable(const OffloadGroup& group, int64_t chunk, int64_t storable);

// The properties of a request that decide which chunks are stored, in tokens.
struct StoreScope {
  int64_t prompt_tokens = 0;
  int64_t shared_prefix_boundary = 0;  // see CacheRequest; 0: none
};
// Sets bit i of `keep` if chunk begin + i may serve a load when `storable` chunks are stored.
// `keep` gets max(storable - begin, 0) bits.
//
// Rules before v0.32: bit i is StoreReachable. From v0.32 on, the chunks of a window follow the
// rule by which the engine retains its blocks. The mask keeps the chunks that the window needs
// before these boundaries:
// - without retention_interval: every multiple of store_alignment. Also `storable`, unless the
//   group has a draft head.
// - with retention_interval: every multiple of retention_interval; the last multiple of
//   store_alignment in the prompt without its last token; the last multiple of store_alignment in
//   the shared prefix.
//
// All bits are set for a group without window_chunks, and in a layout without store_alignment.
void FillStoreMask(const OffloadLayout& layout, size_t group, int64_t begin, int64_t storable,
                   const StoreScope& scope, std::vector<bool>& keep);

// Limits of the stores of one request, in tokens.
struct StoreLimits {
  int64_t num_tokens = 0;
  int64_t prompt_tokens = 0;
  bool prompt_only = false;
  std::optional<int64_t> max_offload_tokens;
};
// The number of leading tokens that may be stored when `tokens_after_step` tokens are computed.
int64_t OffloadableTokens(const StoreLimits& limits, int64_t tokens_after_step);
// The number of leading chunks within `offloadable_tokens` that a group with `allocated_blocks`
// blocks can store. After the end of the prompt, a group with a draft head does not store its last
// chunk, because the draft head may still change this chunk. `is_final`: the draft head will not
// change a chunk again, and the last chunk is stored too. From v0.32 on, the caller must pass true
// if the request has finished. Before v0.32, the caller must pass false.
int64_t StorableChunks(const OffloadGroup& group, int64_t blocks_per_chunk,
                       int64_t offloadable_tokens, int64_t prompt_tokens, int64_t allocated_blocks,
                       bool is_final = false);

}  // namespace kvcast
