// The prefix index: which blocks each worker holds, per tier and group, and what that is worth for
// a prompt.
//
// A block has two names: the hash that the events carry, and its content key (content_key.h), which
// is made of the tokens that a store brings and the name of the block before. Events find a block
// by its hash. A query by content brings the content keys of its prompt and needs no knowledge of
// how an engine hashes; a query by hash brings the engine's own hash chain. Blocks whose content is
// not known (no tokens, unknown parent, positions that the event does not tell) are found by hash
// alone.
//
// The events of one worker decide no answer about another worker.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/core/tier.h"
#include "kvcast/residency/residency_digest.h"
#include "kvcast/router/content_key.h"
#include "kvcast/router/reuse_diagnosis.h"
#include "kvcast/spec/cache_spec.h"
#include "kvcast/spec/group_tokens.h"

namespace kvcast {

// Bounds. A worker that passes one is refused; an event that does is counted as bad.
inline constexpr size_t kMaxIndexWorkers = 65535;
inline constexpr int64_t kMaxGroups = 64;          // a worker
inline constexpr int64_t kMaxBlockSize = 1 << 20;  // tokens
inline constexpr int64_t kMaxBlocksPerChunk = 1 << 12;
inline constexpr int64_t kMaxWindow = int64_t{1} << 40;  // tokens, windows and chunks

// vLLM answers a hit of a request with `kv_cache_report_mode` "full" by storing it again, window
// blocks that are gone included. On the wire that looks like second copies.
enum class HitReports : uint8_t {
  kUnknown,   // stores are copies; where one could have been a report, answers are not certain
  kExpected,  // such a store is a report, and adds nothing
  kNever,     // stores are copies
};

// How an engine looks for blocks on lower tiers, behind its own hit on the GPU.
enum class OffloadRule : uint8_t {
  // vLLM's offloading connector: in chunks, which every group needs on the lower tier: all for full
  // attention, the last ones for a window, the last one for Mamba.
  kConnector,
  // OffloadScheduler, unless it is compatible: of a window the chunks that a load reads.
  kOffloadScheduler,
  // A host pool with the GPU's groups and blocks (vLLM's simple KV offload; SimpleOffload): the
  // engine's own lookup once more, over the tier's blocks from the hit on.
  kMirroredPool,
};

// Which blocks of a window group the engine caches. With it, the positions of a sparse store's
// hashes can often be proved; without it only hashes that other events name are placed.
struct SparseRule {
  EngineRules rules = EngineRules::kMain2026August;
  int64_t alignment = 0;                      // scheduler_block_size, tokens; > 0
  std::optional<int64_t> retention_interval;  // as CacheConfig::retention_interval
};

// Why the content of a block that was stored is not known.
enum class UnnamedReason : uint8_t {
  kNoTokens,       // only stores without tokens, or whose tokens do not fit their hashes, name it
  kUnknownParent,  // its store follows a block whose content is not known
  kSparse,         // its store names fewer hashes than its tokens hold, which block is not known
  kHiddenContent,  // extra keys that cannot be told from tokens, such as a LoRA id without name
  kAmbiguous,      // the worker gave the hash two contents, or its content two hashes
};
inline constexpr int kUnnamedReasons = 5;
// "no_tokens", "unknown_parent", ...
std::string_view UnnamedReasonName(UnnamedReason reason);

// What is known of a worker when it is registered. Groups are also learned from its events.
struct WorkerConfig {
  std::string name;
  // Groups by group_idx; empty: learn kind, window and block size from the events.
  std::vector<GroupSpec> groups;
  int64_t hash_block_size = 0;  // tokens per hash of the chain; 0: gcd of the known block sizes
  // Hits are multiples of it: the engine's scheduler_block_size, or its hash_block_size where
  // partial hits are on. 0: vLLM's rule over the known groups (lcm of the block sizes, or the hash
  // unit if a Mamba group's blocks are larger than it and all other larger blocks are full or
  // Mamba).
  int64_t alignment = 0;
  // Blocks of a group that its offloading connector moves as one. A chunk on a lower tier is known
  // by the hash of its last block.
  int64_t blocks_per_chunk = 1;
  // nullopt: not known, taken for kConnector. Where it is told, blocks_per_chunk counts as told.
  std::optional<OffloadRule> offload_rule;
  HitReports hit_reports = HitReports::kUnknown;
  // Properties of learned groups that no event carries: whether they drop a block for a draft head
  // (EAGLE, MTP without lookahead hashes), and the chunk of chunked local attention.
  // nullopt and 0: not known.
  std::optional<bool> eagle;
  int64_t chunk_size = 0;
  // The release's rules. nullopt: those that promise least.
  std::optional<EngineRules> rules;
  // Tokens behind a block that its hash covers too. More than 0: no group drops a block for its
  // draft head, and a query's chain ends where so many tokens no longer follow.
  int64_t hash_lookahead_tokens = 0;
  // Of a hit the last so many tokens are computed again, and a hit of no more than these is none
  // (vLLM's bounded replay of sliding windows). 0: off. nullopt: not known, taken for off.
  std::optional<int64_t> replay_tokens;
  std::optional<SparseRule> sparse_rule;  // nullopt: not known
  // The parent hash 0 means root unless the worker holds a block of that hash (LMCache, Mooncake).
  bool zero_parent_is_root = false;
  // A store of a block that the group holds in that tier already is no second copy, and one remove
  // takes it (SGLang's maps, LMCache). vLLM's stores are copies.
  bool repeats_are_refreshes = false;
  // Keep digests of what the worker holds; see PrefixIndex::Digests.
  bool digests = false;
};

// Which hits count. The others re-create what routers in the field do, so that it can be measured.
// What the others say of a prompt is gpu_tokens; the rest of their WorkerMatch has no meaning.
enum class MatchPolicy : uint8_t {
  kExact,     // the reuse rule over all groups
  kFullOnly,  // the run of whole blocks that all groups of full kinds hold; 0 without such groups
  kAnyGroup,  // the run of hash units that lie in a block of any group
  kMinOfMaxima,  // every group's own longest prefix by its rule, the shortest of them
};

struct IndexCounters {
  uint64_t stored_blocks = 0;    // hashes of applied stores, copies included
  uint64_t removed_blocks = 0;   // copies taken away by removes
  uint64_t clears = 0;           // AllBlocksCleared events
  uint64_t unknown_removes = 0;  // removes of a hash that is not held (ignored)
  uint64_t bad_events = 0;       // group or block size out of range, or against the known groups
  uint64_t unknown_kinds = 0;    // events of a group whose kind has no reuse rule (not indexed)
  uint64_t assumed_kinds = 0;    // stores without a kind, taken for full_attention
  // Hashes of stores that only repeat a prefix which was there already, as vLLM's report mode
  // "full" sends them (not applied).
  uint64_t reannounced_blocks = 0;
  uint64_t residencies = 0;  // (tier, group, hash) entries now
  // Of them, on the GPU; each fills a block of the engine. 0 where a block can have several hashes.
  uint64_t whole_gpu_blocks = 0;
  // Stored blocks that stayed unnamed, by reason.
  std::array<uint64_t, kUnnamedReasons> unnamed_blocks{};
  uint64_t unnamed = 0;          // (tier, group, hash) entries whose content is not known, now
  uint64_t unnamed_gpu = 0;      // of them, on the GPU
  uint64_t named_late = 0;       // blocks whose content became known after their store
  uint64_t ambiguous = 0;        // hashes and contents that the worker said two things of
  uint64_t bad_stores = 0;       // tokens, hashes or sizes that do not fit together
  uint64_t rules_refuted = 0;    // sparse rules that a store contradicted; not used since
  uint64_t dropped_stores = 0;   // that waited for the block before them and had to make room
  uint64_t forgotten_names = 0;  // names of evicted blocks that had to make room
};

// What one batch did to a worker.
struct ApplyResult {
  // Positions in the batch of the events that were left out, because they only repeat blocks that
  // the index has (IndexCounters::reannounced_blocks).
  std::vector<size_t> left_out;
  uint64_t unknown_removes = 0;  // removes of this batch whose hash the worker does not hold
  IndexCounters counters;        // of the worker, after the batch
  ResidencyTotals digests;       // after the batch; empty without WorkerConfig::digests
};

// How much of what a prompt could hit at most is on the GPU.
enum class HitKind : uint8_t { kMiss, kPartial, kFull };

// One worker's answer.
struct WorkerMatch {
  WorkerId worker;
  int64_t gpu_tokens = 0;  // the reusable prefix: what the engine's own lookup would return
  // The prefix that is served after loads from the CPU, and from the CPU and storages: each at
  // least as long as the one before, by the worker's OffloadRule. Chunks whose transfer is under
  // way or refused are not known here.
  int64_t with_cpu_tokens = 0;
  int64_t with_storage_tokens = 0;
  // By group_idx: what the group, together with those of equal spec, could serve on the GPU without
  // the others; 0 for a group that takes no part.
  GroupTokens per_group_tokens;
  // By gpu_tokens: kFull if no prompt of this length could hit more, kMiss if it is 0.
  HitKind hit = HitKind::kMiss;
  // If not kFull: the group_idx without which the others could serve most. nullopt: none could
  // serve more, or no single group is in the way.
  std::optional<int64_t> limiting_group;
  int64_t replay_tokens = 0;     // of gpu_tokens, computed again
  int64_t recompute_tokens = 0;  // of the prompt: not in gpu_tokens, or computed again
  // False: since its cache was last empty, the worker has stored again a prefix that it could have
  // hit. That store may be a report or a copy. With HitReports::kUnknown it is counted: if it was a
  // report, the answer is too long. With kExpected it is left out
  // (IndexCounters::reannounced_blocks), and answers stay certain until removes contradict that
  // reading. With kNever answers are always certain.
  bool certain = true;
  // Of a query by content: the worker said two things of a block of the prompt. What it says of
  // that block is not counted.
  bool ambiguous = false;
  // Blocks of the worker on the GPU whose content is not known. A query by content does not find
  // them, unless it brings the worker's hash chain too.
  uint64_t unnamed_gpu = 0;
  // Of a query by content that brought the chain too: hashes of the prompt up to the last block of
  // the worker that was found by its hash alone. 0: none was.
  int64_t unnamed_units = 0;
  // The worker holds blocks, on any tier, whose content is not known.
  bool has_unnamed = false;
  // Untold bits that could change gpu_tokens.
  uint32_t untold = 0;
  // Those that could change with_cpu_tokens.
  uint32_t untold_with_cpu = 0;
};

// Properties of a worker that an answer depends on, and that neither its events nor its
// registration have told. A bit mask.
enum class Untold : uint32_t {
  kKinds = 1,        // of the groups: neither sent nor registered
  kWindow = 2,       // of a sliding-window group
  kChunkSize = 4,    // of a chunked-local group
  kGroups = 8,       // whether there are groups that have not been announced yet
  kEagle = 16,       // whether a block is dropped for a draft head
  kReplay = 32,      // whether windows beside MLA groups are computed again
  kRelease = 64,     // how far a lookup that drops a block looks
  kAlignment = 128,  // whether hits end inside the blocks of Mamba groups
  kBlockSize = 256,  // of a Mamba group: only small stores of it were seen
  // How blocks on lower tiers are looked for. These two are in untold_with_cpu alone.
  kOffloadRule = 512,
  // Where a load ends: beside windows that are computed again behind it, inside a block of which a
  // longer beginning is announced too, and where vLLM's rule depends on copies under way.
  kLoadEnd = 1024,
};
inline constexpr int kUntoldProperties = 11;
// "kinds", "window", "chunk_size", ...
std::string_view UntoldName(Untold property);

// The properties of a worker that a query needs before it asks.
struct PromptShape {
  int64_t unit = 0;          // tokens per hash; 0: not known yet, or no such worker
  int64_t lookahead = 0;     // tokens behind a block that its hash covers
  bool has_unnamed = false;  // it holds blocks whose content is not known
  bool has_named = false;    // it has said what some hash names
  // A group of chunked local attention: the worker may have hits without blocks.
  bool has_chunks = false;
};

// A prompt, as the index is asked for it. Borrows what it names.
struct PromptBlocks {
  int64_t unit = 0;           // tokens between two keys, and between two hashes
  int64_t prompt_tokens = 0;  // at least 1
  // Tokens behind a prefix that its name covers: with n of them a prompt of t tokens has
  // (t - n) / unit names.
  int64_t lookahead = 0;
  // contents[i] names the first (i + 1) * unit tokens. Empty: the workers are asked by hash alone.
  std::span<const ContentKey> contents;
  // The engine's chain. Beside contents it finds blocks whose content is not known.
  std::span<const BlockHash> hashes;
};

// Thread-safe. One writer per worker at a time (the order of a worker's batches is its meaning);
// any number of readers. Changes take turns; queries wait for none of them, but for one that a
// query has met in the act several times in a row.
class PrefixIndex {
 public:
  // `keys`, which must outlive the index, are those of its queries.
  explicit PrefixIndex(const ContentKeys& keys = ContentKeys::OfProcess());
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Not ok: registered already, too many workers, or groups and sizes that do not fit together (the
  // message names the field).
  Status AddWorker(WorkerId worker, const WorkerConfig& config);
  // Forgets the worker and all it holds. No-op if unknown.
  // This and the next two cost no more than the worker has groups; what it held is freed bit by bit
  // by later batches, or by Reclaim. Who comes or goes costs a copy of the list of workers besides,
  // 24 bytes each.
  void RemoveWorker(WorkerId worker);
  // Forgets what the worker holds; keeps its registration, learned groups and counters.
  void ClearWorker(WorkerId worker);
  // As ClearWorker, and forgets the learned groups: the engine began anew, maybe with another
  // model.
  void RestartWorker(WorkerId worker);

  // A hidden generation of the worker: built beside what it holds, seen by no query. Begin drops
  // one that is being built. ApplyHidden is to it what Apply is to the worker. Swap puts it in the
  // place of what the worker holds, groups learned included, between two queries. No-ops if there
  // is none.
  void BeginHidden(WorkerId worker);
  void ApplyHidden(WorkerId worker, const EventBatch& batch);
  void SwapHidden(WorkerId worker);
  void DropHidden(WorkerId worker);
  // Frees what was cleared, removed, swapped out or dropped: one pass over the index, which lets
  // batches through. False: there was nothing.
  bool Reclaim();

  // Digests of what the worker, or its hidden generation, holds. Empty without
  // WorkerConfig::digests.
  ResidencyTotals Digests(WorkerId worker) const;
  ResidencyTotals HiddenDigests(WorkerId worker) const;
  // Calls `visit` for everything that the worker holds, in no order. One pass over the index.
  void ForEachResidency(WorkerId worker,
                        const std::function<void(Tier, uint8_t group, const BlockHash&,
                                                 uint32_t copies)>& visit) const;

  // What has been found out of the worker's hash unit (see scheme_detector.h), for as long as its
  // groups are not forgotten. Not ok: another one is registered, or it does not divide a known
  // block size.
  Status LearnHashBlockSize(WorkerId worker, int64_t unit);
  // The worker may hold blocks that were stored before the batches that will be applied: its stream
  // was joined late. Until the GPU's cache is cleared nothing is taken for new. No-op if there is
  // no such worker. ClearWorker implies it.
  void NoteMissedBlocks(WorkerId worker);
  // What the stream has shown of the worker's release, until the worker is restarted. What is
  // registered counts more. No-op if there is no such worker.
  void LearnRules(WorkerId worker, EngineRules rules);

  // Applies one decoded batch; events of an unknown worker are dropped. A query sees all of the
  // batch or nothing of it. Copies are counted: n stores of a (tier, group, hash) take n removes.
  // AllBlocksCleared empties one tier: the one that it names, else the GPU.
  // Takes the writers' lock once. All that a caller may ask about the batch is in the result.
  ApplyResult Apply(WorkerId worker, const EventBatch& batch);

  // Gives blocks of the worker whose content is not known their names: hashes[i] is that of the
  // prefix contents[i]. Others are left as they are; a block that has another name becomes
  // ambiguous. Lets batches and other calls through in between. Returns the blocks that were named.
  // REQUIRES: as many contents as hashes.
  size_t NameBlocks(WorkerId worker, std::span<const BlockHash> hashes,
                    std::span<const ContentKey> contents);

  // Reusable prefix per worker of a prompt of `prompt_tokens` tokens whose hash chain (at `unit`
  // tokens per hash) is `chain`. Never promises more than prompt_tokens - 1. Workers with another
  // hash unit are left out; one whose unit is not known yet answers 0. `workers` empty: all, in
  // order of registration. Workers that are not registered are left out.
  std::vector<WorkerMatch> Match(std::span<const BlockHash> chain, int64_t unit,
                                 int64_t prompt_tokens, std::span<const WorkerId> workers = {},
                                 MatchPolicy policy = MatchPolicy::kExact) const;

  // The same by content, by hash, or both. The prompt is cut to what a prompt of its tokens can
  // have.
  std::vector<WorkerMatch> Match(const PromptBlocks& prompt, std::span<const WorkerId> workers = {},
                                 MatchPolicy policy = MatchPolicy::kExact) const;
  const ContentKeys& keys() const;

  // Why the worker's prefixes are not reused. Reads a bounded sample of its prompts, prompt by
  // prompt; batches are let through between two of them. Empty if there is no such worker.
  ReuseDiagnosis Diagnose(WorkerId worker) const;

  // The content that the worker gave a block that it holds; kUnnamed: none.
  ContentKey ContentOf(WorkerId worker, const BlockHash& hash) const;

  // Takes no lock, as Match.
  PromptShape ShapeOf(WorkerId worker) const;

  // What is known of the worker's groups now, by group_idx; kUnknown where nothing is.
  std::vector<GroupSpec> Groups(WorkerId worker) const;
  // Tokens per hash of the worker's chain; 0: not known yet, or no such worker.
  int64_t hash_block_size(WorkerId worker) const;
  IndexCounters counters(WorkerId worker) const;
  // Times that a call took the writers' lock, so far. Match and ShapeOf take it only where a query
  // has read a worker four times while batches of it were shown.
  uint64_t writer_locks() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
