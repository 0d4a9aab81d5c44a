// PrefixIndex: records the blocks that each worker holds, per tier and group, and computes the
// prefix of a prompt that each worker can reuse.
//
// A block has two names: the block hash in the events, and its content key (content_key.h). The
// index computes the content key from the tokens of a store and from the content key of the
// previous block. An event names a block by its hash. A block is unnamed if its content key is not
// known.
//
// A query by content passes the content keys of its prompt, and does not depend on the hash scheme
// of an engine. A query by hash passes the hash chain of the engine. If the content of a block is
// not known (no tokens, unknown parent, or positions that the event does not determine), only a
// query by hash finds the block.
//
// The events of one worker never affect the answer for another worker.
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
#include "kvcast/router/worker_config.h"
#include "kvcast/spec/group_tokens.h"

namespace kvcast {

namespace router {
class IndexImage;
}  // namespace router

// The reason why the content of a stored block is not known.
enum class UnnamedReason : uint8_t {
  // Only stores without tokens, or with tokens that do not fit their hashes, name the block.
  kNoTokens,
  // The store continues a block whose content is not known.
  kUnknownParent,
  // The store names fewer blocks than its tokens fill, and the position of the block is not known.
  kSparse,
  // The block has extra keys that a content key cannot represent, such as a LoRA id without a name.
  // Or: a store on a lower tier has another number of lookahead tokens than the GPU stores.
  kHiddenContent,
  // The worker gave two contents to one hash, or two hashes to one content.
  kAmbiguous,
};
inline constexpr int kUnnamedReasons = 5;
// "no_tokens", "unknown_parent", ...
std::string_view UnnamedReasonName(UnnamedReason reason);

// The rule that computes gpu_tokens. All values except kExact reproduce rules of other routers, for
// comparison. With these values, only WorkerMatch::gpu_tokens has a meaning.
enum class MatchPolicy : uint8_t {
  // The reuse rule over all groups.
  kExact,
  // The leading run of whole blocks that all groups of full kinds hold. 0 without such groups.
  kFullOnly,
  // The leading run of hash units, each of which is in a held block of at least one group.
  kAnyGroup,
  // Each group has a longest prefix by the rule of its kind. The result is the shortest of these
  // prefixes.
  kMinOfMaxima,
};

// Counters of one worker since its registration, except where a comment states otherwise.
struct IndexCounters {
  uint64_t stored_blocks = 0;    // hashes of applied stores, including copies
  uint64_t removed_blocks = 0;   // copies that removes deleted
  uint64_t clears = 0;           // AllBlocksCleared events
  uint64_t unknown_removes = 0;  // removes of a hash that is not held (ignored)
  // Events with a group or block size out of range, or in conflict with the known groups. They are
  // not applied, and the worker has UnknownProperty::kConflict.
  uint64_t bad_events = 0;
  // Events of a group whose kind has no reuse rule, or that is registered without prefix caching
  // (not indexed).
  uint64_t unknown_kinds = 0;
  // Stores without a kind; the index treats them as full_attention.
  uint64_t assumed_kinds = 0;
  // Hashes of stores that the index did not apply, because the stores only repeat a prefix that the
  // index has. vLLM sends such stores in report mode "full".
  uint64_t reannounced_blocks = 0;
  uint64_t residencies = 0;  // current number of (tier, group, hash) entries
  // Current number of these entries on the GPU, if each entry fills one block of the engine. 0 if a
  // block of the engine can have several hashes.
  uint64_t whole_gpu_blocks = 0;
  // Blocks whose content was not known when they were stored, by reason. The content of such a
  // block may become known later.
  std::array<uint64_t, kUnnamedReasons> unnamed_blocks{};
  // Current number of (tier, group, hash) entries whose content is not known.
  uint64_t unnamed = 0;
  uint64_t unnamed_gpu = 0;  // of these entries, those on the GPU
  uint64_t named_late = 0;   // blocks whose content became known after their store
  // Contradictions in the names from the worker. A hash with two contents counts 2. A content with
  // two hashes counts 1.
  uint64_t ambiguous = 0;
  // Stores whose tokens, hashes or sizes do not fit together.
  uint64_t bad_stores = 0;
  // Stores that contradicted WorkerConfig::sparse_rule. After such a store, the index does not use
  // the rule.
  uint64_t rules_refuted = 0;
  // Stores that waited for the name of the previous block, and that the index dropped because too
  // many stores or tokens waited.
  uint64_t dropped_stores = 0;
  // Names of evicted blocks that newer names replaced, because the number of such names is limited.
  uint64_t forgotten_names = 0;
};

// The effect of one batch on a worker.
struct ApplyResult {
  // Positions in the batch of the events that the index did not apply, because they only repeat
  // blocks that the index has (IndexCounters::reannounced_blocks).
  std::vector<size_t> left_out;
  uint64_t unknown_removes = 0;  // removes of this batch whose hash the worker does not hold
  IndexCounters counters;        // of the worker, after the batch
  ResidencyTotals digests;       // after the batch; empty without WorkerConfig::digests
};

// The part of the longest possible hit of a prompt that the GPU serves: none, a part, or all.
enum class HitKind : uint8_t { kMiss, kPartial, kFull };

// The answer for one worker. All lengths are in tokens.
struct WorkerMatch {
  WorkerId worker;
  // Derived from gpu_tokens. kMiss: gpu_tokens is 0. kFull: no prompt of this length could have a
  // longer hit. kPartial: all other cases.
  HitKind hit = HitKind::kMiss;
  // False: since its cache was last empty, the worker stored again a prefix that it could have hit.
  // Such a store is a report of a hit, or a copy. The effect depends on HitReports:
  // - kUnknown: the index counts the blocks as copies. After a report, the answer is too long.
  // - kExpected: the index does not apply the store (IndexCounters::reannounced_blocks). Answers
  //   stay certain until removes show that the store was a copy, or until the index cannot
  //   determine whether a later store is a report or a copy.
  // - kNever: answers are always certain.
  // With kUnknown and kExpected, NoteRecord makes answers uncertain (snapshots, repairs).
  bool certain = true;
  // Queries by content only. True: the worker sent contradicting names for a block of the prompt.
  // The answer does not include this block.
  bool ambiguous = false;
  // True: the worker holds blocks, on any tier, whose content is not known.
  bool has_unnamed = false;
  // The reusable prefix on the GPU: the result of the engine's own lookup.
  int64_t gpu_tokens = 0;
  // with_cpu_tokens: the prefix that the worker serves after loads from the CPU tier.
  // with_storage_tokens: the prefix after loads from the CPU and storage tiers. Both lengths follow
  // the worker's OffloadRule. gpu_tokens <= with_cpu_tokens <= with_storage_tokens. Events do not
  // show chunks whose transfer is in progress or was refused.
  int64_t with_cpu_tokens = 0;
  int64_t with_storage_tokens = 0;
  // By group_idx: the prefix that the group and the groups of equal spec could serve on the GPU
  // without the other groups. 0 for a group that takes no part in prefix caching.
  GroupTokens per_group_tokens;
  // The group_idx of the limiting group: the first group that alone serves no more than the hit. If
  // there is no such group: the group without which the other groups serve the longest prefix. Set
  // only if `hit` is not kFull. nullopt: no single group limits the hit.
  std::optional<int64_t> limiting_group;
  int64_t replay_tokens = 0;  // tokens of gpu_tokens that are computed again
  // Tokens of the prompt that are not in gpu_tokens, or are computed again.
  int64_t recompute_tokens = 0;
  // Number of GPU blocks of the worker whose content is not known. A query by content finds these
  // blocks only if the query also passes the worker's hash chain.
  uint64_t unnamed_gpu = 0;
  // Only for queries with content keys and a hash chain: the number of hashes of the prompt up to
  // the last block that the query found by hash. 0: the query found no block by hash.
  int64_t unnamed_units = 0;
  // Mask of UnknownProperty: the unknown properties that could change gpu_tokens.
  uint32_t unknown = 0;
  // Mask of UnknownProperty: the unknown properties that could change with_cpu_tokens.
  uint32_t unknown_with_cpu = 0;
};

// The short answer for one worker; see PrefixIndex::Scores.
struct WorkerScore {
  WorkerId worker;
  // False: gpu_tokens may be wrong, and Match gives the reason in `certain`, `ambiguous`,
  // `unknown`, or `unnamed_gpu`.
  bool exact = false;
  int64_t gpu_tokens = 0;  // as in WorkerMatch; at least 1
};

// Properties of a worker that an answer depends on, and that neither the events nor the
// registration of the worker contain. The values are bits of a mask.
enum class UnknownProperty : uint32_t {
  // The kinds of the groups.
  kKinds = 1,
  // The window of a sliding-window group.
  kWindow = 2,
  // The chunk size of a chunked-local group.
  kChunkSize = 4,
  // Whether the worker has groups that no event has named yet.
  kGroups = 8,
  // Which groups drop a block for a draft head. WorkerConfig::eagle does not tell this if learned
  // groups differ.
  kEagle = 16,
  // Whether the engine computes windows beside MLA groups again after a hit.
  kReplay = 32,
  // The engine release. Releases differ in the lookup that drops a block, and in the number of
  // chunks that a window loads.
  kRelease = 64,
  // Whether hits can end inside the blocks of Mamba groups.
  kAlignment = 128,
  // The block size of a Mamba group, or of a full-attention group beside a Mamba group. The blocks
  // of the group may be larger than its stores so far.
  kBlockSize = 256,
  // The rule of lookups on lower tiers. kOffloadRule and kLoadEnd occur only in unknown_with_cpu.
  kOffloadRule = 512,
  // The end of a load is unknown in four cases. First: the engine computes windows again after the
  // load. Second: the load ends inside a block, and the events also announce a longer part of this
  // block. Third: vLLM's rule depends on copies in progress. Fourth: the rule is kMirroredPool, and
  // vLLM's pool differs from the pool of this library for these groups.
  kLoadEnd = 1024,
  // Which side is right, the events or the registration. Set in two cases. First: since a tier was
  // last empty, the index did not apply an event of this tier (IndexCounters::bad_events). Without
  // registered groups, such an event contradicts earlier events. Second: the stores have another
  // lookahead than WorkerConfig::hash_lookahead_tokens.
  kConflict = 2048,
};
inline constexpr int kUnknownProperties = 12;
// "kinds", "window", "chunk_size", ...
std::string_view UnknownPropertyName(UnknownProperty property);

// The properties of a worker that a caller needs to build a query.
struct PromptShape {
  // Tokens per hash. 0: not known yet, or the worker is not registered.
  int64_t hash_block_size = 0;
  int64_t lookahead = 0;  // tokens after a block that its hash covers
  // The worker holds blocks whose content is not known.
  bool has_unnamed = false;
  // The worker has sent the content of at least one block.
  bool has_named = false;
  // The worker has a group of chunked local attention, so it may have hits without blocks.
  bool has_chunks = false;
};

// A prompt in a query. The spans must be valid during the call.
struct PromptBlocks {
  int64_t hash_block_size = 0;  // tokens per key and per hash
  int64_t prompt_tokens = 0;    // at least 1
  // Number of tokens after a prefix that the key or hash of the prefix also covers. A prompt of t
  // tokens has (t - lookahead) / hash_block_size keys or hashes.
  int64_t lookahead = 0;
  // contents[i] names the first (i + 1) * hash_block_size tokens. Empty: a query by hash only.
  std::span<const ContentKey> contents;
  // The hash chain of the engine. If `contents` is not empty, the chain finds only blocks whose
  // content is not known.
  std::span<const BlockHash> hashes;
  // The hash chain, if all its hashes are unsigned integers. It takes 8 bytes per block, and
  // `hashes` takes 40. Ignored if `hashes` is not empty.
  std::span<const uint64_t> integer_hashes;
};

inline constexpr size_t kMaxIndexShards = 64;

// The index is divided into shards. Each worker belongs to one shard. A shard has a lock for its
// writers, so changes of workers of different shards run at the same time. A query visits the
// shards of all its workers. A block that workers of several shards hold takes memory in each of
// these shards.
//
// Thread-safe. Batches of one worker must be applied by one thread at a time, because their order
// matters. Each change takes the lock of the worker's shard. ShapeOf takes no lock. Match and
// Scores first read a shard without its lock. A reading is disturbed if a queried worker of the
// shard changes, or if the index moves blocks of the shard in memory. After 4 disturbed readings,
// the call takes the lock of the shard.
class PrefixIndex {
 public:
  // `keys`: the instance that makes the content keys of the queries. It must outlive the index.
  // REQUIRES: 1 <= shards <= kMaxIndexShards; otherwise the process ends. One shard for each thread
  // that applies batches is enough.
  explicit PrefixIndex(const ContentKeys& keys = ContentKeys::OfProcess(), size_t shards = 1);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  size_t shards() const { return shards_.size(); }
  // The shard of a worker: its id modulo shards(). If each thread applies the batches of one shard,
  // no thread waits for another.
  size_t ShardOf(WorkerId worker) const { return worker.value % shards_.size(); }

  // Registers a worker. Copies the list of the shard's workers (24 bytes per worker). Errors:
  // kFailedPrecondition if the worker is registered already; kLimit if the shard has
  // kMaxIndexWorkers workers; kInvalidArgument if groups and sizes do not fit together (the message
  // names the field).
  Status AddWorker(WorkerId worker, const WorkerConfig& config);
  // Removes the worker and all its blocks. No-op if the worker is not registered.
  //
  // Cost of RemoveWorker, ClearWorker and RestartWorker: O(groups of the worker). Later batches, or
  // Reclaim, free the memory of the blocks in small steps. RemoveWorker also copies the list of the
  // shard's workers (24 bytes per worker).
  void RemoveWorker(WorkerId worker);
  // Removes all blocks of the worker. Its registration, learned groups and counters stay.
  void ClearWorker(WorkerId worker);
  // As ClearWorker, and also removes the learned groups, names and rules. For an engine that
  // restarted, possibly with another model.
  void RestartWorker(WorkerId worker);

  // A hidden generation of a worker is a second set of blocks that no query reads. BeginHidden
  // starts an empty generation, and drops an unfinished generation. ApplyHidden applies a batch to
  // the hidden generation. SwapHidden replaces the blocks and the learned groups of the worker with
  // those of the hidden generation, in one atomic step for queries. DropHidden deletes the
  // generation. Without a hidden generation, ApplyHidden, SwapHidden and DropHidden do nothing.
  void BeginHidden(WorkerId worker);
  void ApplyHidden(WorkerId worker, const EventBatch& batch);
  void SwapHidden(WorkerId worker);
  void DropHidden(WorkerId worker);
  // Frees the memory of blocks that were cleared, removed, replaced or dropped. The call makes one
  // pass over the index. It holds the lock of one shard at a time, and releases it between steps.
  // Batches make tables larger. Only this call makes tables smaller. False: an immediate next call
  // would find nothing to free.
  bool Reclaim();

  // Digests of the blocks that the worker, or its hidden generation, holds. Empty if
  // WorkerConfig::digests is false.
  ResidencyTotals Digests(WorkerId worker) const;
  ResidencyTotals HiddenDigests(WorkerId worker) const;
  using VisitResidency =
      std::function<void(Tier, uint8_t group, const BlockHash&, uint32_t copies)>;
  // Calls `visit` for every entry of the worker, in no particular order. Cost: a pass over the
  // worker's shard, in steps. The call holds the lock of the shard during a step of about 0.1 ms.
  // An entry that the worker has during the whole call is visited once. If the worker's entries
  // change meanwhile, a new or removed entry may be visited or not, and an entry that SwapHidden
  // replaces may be visited twice. An entry whose block gets a content key meanwhile may be visited
  // twice or not. `visit` must not call the index.
  void ForEachResidency(WorkerId worker, const VisitResidency& visit) const;

  // Sets the worker's hash_block_size to the value that the scheme detector found in its stores
  // (see scheme_detector.h). The value is valid until the learned groups are removed. Errors:
  // kNotFound if the worker is not registered; kFailedPrecondition if another hash_block_size is
  // registered, or if the value is out of range or does not divide a known block size.
  Status LearnHashBlockSize(WorkerId worker, int64_t hash_block_size);
  // Declares that the worker may hold blocks whose stores are in no batch, because the subscriber
  // joined the stream late. Until a clear of the GPU cache, the index does not conclude that a
  // block is new. No-op if the worker is not registered. ClearWorker implies this call,
  // RestartWorker does not.
  void NoteMissedBlocks(WorkerId worker);
  // Declares that the next batch repairs the worker's blocks from the publisher's record of the
  // engine's blocks. The record counts hit reports as copies. The worker's answers are therefore
  // not certain until a clear of the GPU cache, except with HitReports::kNever. The call also has
  // the effect of NoteMissedBlocks. SwapHidden implies this call if the hidden generation has GPU
  // blocks. No-op if the worker is not registered.
  void NoteRecord(WorkerId worker);
  // Sets the release rules that the stream has shown. nullopt: it has shown none. The value is
  // valid until RestartWorker. Registered rules have priority. No-op if the worker is not
  // registered.
  void LearnRules(WorkerId worker, std::optional<EngineRules> rules);

  // Applies one decoded batch. Events of a worker that is not registered are dropped. A query
  // includes either the whole batch or no part of it. Without WorkerConfig::repeats_are_refreshes,
  // the index counts copies: n stores of a (tier, group, hash) need n removes. AllBlocksCleared
  // empties one tier: the tier that it names, else the GPU.
  //
  // Takes the lock of the worker's shard. A large batch releases the lock from time to time, so
  // that other batches can run.
  ApplyResult Apply(WorkerId worker, const EventBatch& batch);

  // Gives content keys to blocks of the worker whose content is not known: hashes[i] is the hash of
  // the prefix that contents[i] names. If the known content of a block has another key, the block
  // becomes ambiguous. Ignores hashes that the worker does not hold. The call takes the lock of the
  // shard several times, so batches can run in between. Returns the number of blocks that got a
  // name. REQUIRES: hashes and contents have equal sizes.
  size_t NameBlocks(WorkerId worker, std::span<const BlockHash> hashes,
                    std::span<const ContentKey> contents);

  // Returns the reusable prefix per worker, for a prompt of `prompt_tokens` tokens with the hash
  // chain `chain` (`hash_block_size` tokens per hash). No result is above prompt_tokens - 1.
  // The results are grouped by shard. In a shard, they have the order of `workers`, or of
  // registration if `workers` is empty. Empty `workers`: all workers. A prompt_tokens below 1
  // counts as 1. The result is empty if hash_block_size is not in 1 to kMaxBlockSize.
  //
  // A worker with another hash_block_size is not in the result. A worker whose hash_block_size is
  // not known yet has the answer 0. Workers that are not registered are not in the result.
  std::vector<WorkerMatch> Match(std::span<const BlockHash> chain, int64_t hash_block_size,
                                 int64_t prompt_tokens, std::span<const WorkerId> workers = {},
                                 MatchPolicy policy = MatchPolicy::kExact) const;

  // As above, by content, by hash, or both. Ignores keys and hashes beyond the number that
  // prompt_tokens allows.
  std::vector<WorkerMatch> Match(const PromptBlocks& prompt, std::span<const WorkerId> workers = {},
                                 MatchPolicy policy = MatchPolicy::kExact) const;
  // As Match, for callers that need only the lengths. Workers that can reuse no token are not in
  // the result. Computes one result for each set of workers with equal blocks and rules. Each
  // further worker of a set costs a few nanoseconds.
  std::vector<WorkerScore> Scores(const PromptBlocks& prompt,
                                  std::span<const WorkerId> workers = {}) const;
  const ContentKeys& keys() const;

  // Returns the reason why the worker's prefixes are not reused. The call reads a bounded sample of
  // the worker's prompts, one prompt at a time; batches can run between two prompts. The result is
  // empty if the worker is not registered.
  ReuseDiagnosis Diagnose(WorkerId worker) const;

  // The content key of a block that the worker holds. kUnnamed: not known.
  ContentKey ContentOf(WorkerId worker, const BlockHash& hash) const;

  // The properties of a worker for a query. Takes no lock.
  PromptShape ShapeOf(WorkerId worker) const;

  // The known properties of the worker's groups, by group_idx. kUnknown for a group without a known
  // kind.
  std::vector<GroupSpec> Groups(WorkerId worker) const;
  // Tokens per hash of the worker's chain. 0: not known yet, or the worker is not registered.
  int64_t hash_block_size(WorkerId worker) const;
  IndexCounters counters(WorkerId worker) const;
  // Number of events in bad_events and unknown_kinds, by group_idx. Element kMaxGroups counts
  // events with a group out of range. The list ends after the last element that is not 0.
  std::vector<uint64_t> GroupRejects(WorkerId worker) const;
  // Sums over all shards. batch_pauses: number of times that a batch released the lock of a shard
  // to let other batches run, and took the lock again after this pause. writer_locks: number of
  // times that calls took the lock of a shard, without the locks after a pause. One call may take
  // the lock several times.
  uint64_t writer_locks() const;
  uint64_t batch_pauses() const;

 private:
  friend class router::IndexImage;  // saves and restores the blocks of workers
  class Impl;

  Impl& Of(WorkerId worker) const { return *shards_[ShardOf(worker)]; }
  // Calls `visit(shard, ids)` for each shard, with the workers of `workers` that belong to it.
  // `workers` empty: visits all shards, with no ids.
  template <typename Visit>
  void ForEachShard(std::span<const WorkerId> workers, Visit&& visit) const;

  std::vector<std::unique_ptr<Impl>> shards_;
};

}  // namespace kvcast
