// Offload rules: what a lookup in the memory behind the GPU gives, as pure functions.
//
// The rules of vLLM's offloading connector. A chunk is blocks_per_chunk blocks of one group under
// one key; full attention needs every chunk of a prefix, a window the last few. All groups must be
// able to load the same prefix. The engine's scheduler and the router's index ask the same rules.
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

enum class LookupResult : uint8_t {
  kMiss,
  kHit,      // can be loaded
  kPending,  // present, but its bytes are not readable yet
  kRetry,    // not known yet: ask again. Only tiers behind host memory answer so
};

// One group, in chunks.
struct OffloadGroup {
  GroupIdx index;  // in OffloadLayoutConfig::groups; keys and events have it
  int64_t tokens_per_block = 0;
  int64_t tokens_per_chunk = 0;
  int64_t hashes_per_chunk = 0;
  // Chunks that the end of a prefix needs; nullopt: all of them (full kinds).
  std::optional<int64_t> window_chunks;
  // Loads end at multiples of this many chunks, so that what lies far from one needs no storing.
  std::optional<int64_t> alignment_chunks;
  bool eagle = false;  // the last chunk of a hit must be computed again for the draft head
  // States are kept at the ends of steps, in blocks of their own.
  bool requires_cow_source = false;
  // A prefix that ends inside a block is kept under the hash of so many tokens more, which a draft
  // head reads. More than 0 only where prefixes may end so.
  int64_t tail_margin = 0;
  GroupSpec spec;  // as configured

  friend bool operator==(const OffloadGroup&, const OffloadGroup&) = default;
};

struct OffloadLayoutConfig {
  std::vector<GroupSpec> groups;
  int64_t tokens_per_hash = 16;  // every block size is a multiple
  int64_t blocks_per_chunk = 1;
  // Where no group says that it is one: all are EAGLE groups, until v0.32; from then on none is.
  bool speculative_eagle = false;
  // Block sizes count the tokens of all ranks (GroupSpec::block_size); this only forbids tails.
  int64_t decode_context_parallel = 1;
  // Look up as vLLM's connector does: a window needs window_chunks chunks wherever the prefix ends.
  // That is one too few where the end lies inside a chunk of the window's and several chunk sizes
  // meet, so that a hit may be one that cannot be loaded; and one too many where a window is a
  // token longer than whole chunks. Else a prefix needs the chunks that its load reads. And an end
  // inside a block is waited for where it is pending in one group, although another group asked
  // later lacks it. Until v0.32 a group of a full kind with a draft head is asked for no chunk
  // behind the prefix, but gives one up all the same, and one more where pending chunks make the
  // lookup begin again. Else the lookup waits only for blocks that every group has or will have.
  bool compatible = false;
  // Whose connector. From v0.32 on:
  //   groups outside prefix caching (TakesPart) are left out of the layout
  //   a group of any kind with a draft head is asked for one chunk behind the prefix, not only a
  //     window; without compatible it is in any case
  //   compatible: a window keeps its extra_retained_tokens too; at a prefix that ends inside a
  //   chunk
  //     it needs what LoadWindowChunks says; a pending chunk is waited for only in the window found
  //   which chunks of a window are stored: FillStoreMask
  EngineRules rules = EngineRules::kMain2026August;
  // CacheConfig::retention_interval, which chunks of windows follow from v0.32 on.
  std::optional<int64_t> retention_interval;
};

struct OffloadLayout {
  std::vector<OffloadGroup> groups;  // those that are offloaded, in the order of the config
  int64_t configured_groups = 0;
  int64_t tokens_per_hash = 0;
  int64_t blocks_per_chunk = 0;
  std::vector<size_t> lookup_order;  // full kinds as configured, then windows, the widest first
  std::optional<int64_t> mamba_align_tokens;  // prefixes end at multiples of this
  // Prefixes may end inside a block, at a hash unit. Beside draft heads from v0.33 on.
  bool supports_partial_tail = false;
  bool compatible = false;  // as configured
  EngineRules rules = EngineRules::kMain2026August;
  std::optional<int64_t> retention_interval;
  // Tokens of a chunk of full attention, or of the largest chunk where there is none. nullopt: full
  // attention has chunks of several sizes.
  std::optional<int64_t> store_alignment;

  bool has_windows() const;

  // kInvalidArgument, naming the field: no group, a size that is not positive, a block size that is
  // no multiple of tokens_per_hash, Mamba states of different sizes, a kind that is not cached;
  // from v0.32 on instead of this: no group takes part in prefix caching, or a retention_interval
  // that is no multiple of the chunks of windows.
  static Result<OffloadLayout> Derive(const OffloadLayoutConfig& config);
};

// Chunks [begin, end) of one group.
struct ChunkRange {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};
// Those that a load of the first `tokens` tokens reads: all that hold a token which attention still
// sees. Empty where it sees none.
ChunkRange NeededChunks(const OffloadGroup& group, int64_t tokens);

// The chunks that a window needs before a prefix of `tokens` tokens, as vLLM counts them from v0.32
// on: window_chunks, or more where the end lies inside a chunk, as the window begins earlier by
// the tokens of the chunk behind it. REQUIRES: a group with window_chunks.
int64_t LoadWindowChunks(const OffloadGroup& group, int64_t tokens);

// Answers for chunk 0, 1, ... of one group.
using ChunkAnswer = std::function<LookupResult(int64_t chunk)>;

// The number of leading chunks of [0, chunks) that are there; nullopt: pending. A retry does not
// end the scan, so that a lower tier gets to know of all the chunks at once.
std::optional<int64_t> ScanPrefix(int64_t chunks, const ChunkAnswer& answer);
// The end of the last run of `required` chunks; where there is none, the length of the run at the
// front, whose left context the caller has. nullopt: something asked on the way is pending.
std::optional<int64_t> ScanWindow(int64_t chunks, int64_t required, const ChunkAnswer& answer);

// The same from v0.32 on: a run that ends with the last chunk needs `required_at_end`. A
// pending chunk is waited for only where it lies in the run that was found; a retry always is.
std::optional<int64_t> ScanLoadWindow(int64_t chunks, int64_t required, int64_t required_at_end,
                                      const ChunkAnswer& answer);

// What a lookup is about.
struct OffloadQuestion {
  int64_t num_tokens = 0;     // of the request
  int64_t prompt_tokens = 0;  // of them
  int64_t local_tokens = 0;   // leading ones that the GPU has already
  int64_t num_hashes = 0;     // complete hash units of the request
  // No more are loaded. The prefix then ends between chunks of all groups.
  std::optional<int64_t> max_load_tokens;
};

// Where the chunks of a request are.
struct OffloadAnswers {
  std::function<LookupResult(size_t group, int64_t chunk)> chunk;
  // The state or block under the hash of the first `tokens` tokens: an end inside a block, and
  // the group's tail_margin. Empty: a miss.
  std::function<LookupResult(size_t group, int64_t tokens)> tail;
  // Another request is loading this chunk right now. Empty: it is not.
  std::function<bool(size_t group, int64_t chunk)> being_loaded;
};

struct OffloadAnswer {
  // To load, behind those that the GPU has; nullopt: pending, ask again.
  std::optional<int64_t> tokens;
  std::optional<int64_t> tail_boundary;  // the prefix ends here, inside a block
};

// The longest prefix that all groups can load together. It may be the whole request where every
// group is of a full kind; the last token is then computed again.
// REQUIRES: counts >= 0, local_tokens <= num_tokens.
OffloadAnswer LookupOffloaded(const OffloadLayout& layout, const OffloadQuestion& question,
                              const OffloadAnswers& answers);

// The first of a request's chunks that a lookup with `hit_chunks` chunks uses: what a window does
// not need keeps its age.
int64_t FirstTouchedChunk(const OffloadGroup& group, int64_t hit_chunks);

// Whether any load can ever need this chunk of a window, when `storable` chunks are stored.
bool StoreReachable(const OffloadGroup& group, int64_t chunk, int64_t storable);

// The properties of a request that decide which chunks are worth storing, in tokens.
struct StoreScope {
  int64_t prompt_tokens = 0;
  int64_t shared_prefix_boundary = 0;  // CacheRequest; 0: none
};
// Bit i of `keep`: chunk begin + i may serve a load, when `storable` chunks are stored. Until v0.32
// as StoreReachable. From then on a window's chunks are kept by the rule by which the engine keeps
// its blocks: those before every multiple of store_alignment; with a retention interval those
// before its multiples, and before the last multiples of store_alignment that the prompt without
// its last token, and the shared prefix, reach. Without an interval also those before `storable`,
// but for groups with a draft head.
void FillStoreMask(const OffloadLayout& layout, size_t group, int64_t begin, int64_t storable,
                   const StoreScope& scope, std::vector<bool>& keep);

// What bounds the storing of one request, in tokens.
struct StoreLimits {
  int64_t num_tokens = 0;
  int64_t prompt_tokens = 0;
  bool prompt_only = false;
  std::optional<int64_t> max_offload_tokens;
};
// Leading tokens that may be stored when `tokens_after_step` are computed.
int64_t OffloadableTokens(const StoreLimits& limits, int64_t tokens_after_step);
// Leading chunks of them that a group with `allocated_blocks` blocks can store. `is_final`: the
// draft head changes nothing any more; from v0.32 on when the request has finished.
int64_t StorableChunks(const OffloadGroup& group, int64_t blocks_per_chunk,
                       int64_t offloadable_tokens, int64_t prompt_tokens, int64_t allocated_blocks,
                       bool is_final = false);

}  // namespace kvcast
