// CacheManager: the prefix-caching block manager of one engine, for any mix of KV-cache groups.
//
// The scheduler-facing half of vLLM's KVCacheManager: look up the cached prefix of a request,
// allocate slots for the tokens of the next step, free them, and drain the events that this caused.
// Same calls give the same block ids and the same events. Thread-compatible: one owner thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/gpu_block_pool.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/spec/cache_spec.h"
#include "kvcast/wire/wire.h"

namespace kvcast {

// A request as the cache sees it. Owned by the engine; must outlive its time in the manager.
// The engine appends sampled tokens to `tokens`; the manager extends `chain` when it needs to.
struct CacheRequest {
  std::string id;
  std::vector<TokenId> tokens;  // prompt, then sampled tokens
  int64_t prompt_tokens = 0;
  HashInputs hash_inputs;
  std::optional<int64_t> lora_id;
  std::optional<std::string> session_id;
  bool skip_prefix_lookup = false;  // e.g. prompt logprobs are wanted
  // kv_cache_report_mode "full": a lookup that hits announces the hit's blocks again.
  bool report_hits = false;

  // Kept by the manager.
  std::vector<Digest> chain;           // one digest per complete hash unit of `tokens`
  int64_t shared_prefix_boundary = 0;  // tokens; 0: none
};

// Result of a lookup: blocks that are cached now. Nothing is held until AllocateSlots succeeds.
struct PrefixHit {
  int64_t tokens = 0;  // <= request tokens - 1, the same for all groups
  // Per group, ceil(tokens / block_size) block ids; id 0 (null block) where the group needs none.
  std::vector<std::vector<BlockId>> blocks;
  // Of `tokens`, at the end: to be computed again (CacheConfig::replay_tokens). Where that is all
  // of them, AllocateSlots takes the hit for none.
  int64_t replay_tokens = 0;
  // Tokens that count as computed once the hit was adopted.
  int64_t computed_tokens() const { return tokens - replay_tokens; }
  // Prefix length worth retaining because one group already has it (0: none).
  int64_t shared_prefix_boundary = 0;
};

struct AllocateArgs {
  int64_t computed_tokens = 0;     // already computed before this step, hits of `hit` not counted
  int64_t new_tokens = 0;          // to be computed in this step
  int64_t lookahead_tokens = 0;    // draft slots beyond them
  int64_t in_flight_tokens = 0;    // scheduled, not processed
  int64_t external_tokens = 0;     // loaded from another tier behind the hit
  int64_t encoder_tokens = 0;      // cross attention
  const PrefixHit* hit = nullptr;  // first allocation of a request: the lookup's result
  bool full_sequence_must_fit = false;  // admission gate for waiting requests
  bool apply_watermark = false;
  int64_t reserved_blocks = 0;  // free blocks that are promised to others
  bool delay_caching = false;   // the blocks' content arrives later: call CacheBlocks then
};

// A block to be copied before the step runs, because a request goes on inside a block that is
// cached up to the middle. Both blocks are held until ReleaseCopies.
struct BlockCopy {
  BlockId source;
  BlockId target;
};

struct CacheUsage {
  int64_t total_blocks = 0;  // null block not counted
  int64_t free_blocks = 0;   // cached blocks that nobody uses count as free
};

// Which events a cache makes. The defaults are vLLM's stream, byte for byte; the options below
// `hash_form` are kvcast's own, and readers of vLLM's stream understand what they make.
struct EventOptions {
  bool enabled = true;
  EventHashForm hash_form = EventHashForm::kInt64;
  // A hash is stored with its first copy and removed with its last: readers need not count. Hits
  // are not reported again either.
  bool announce_once = false;
  // A stored event covers the tokens of the blocks that it names and no others: one event for each
  // run of neighbouring blocks, with the run's own parent and token_offset, and none for no block.
  // A report of a hit leaves out the positions that the group does not hold.
  bool exact_spans = false;
  // AllBlocksCleared names its tier.
  bool name_cleared_tier = false;
};

// A cached hash of one group and the number of blocks that hold it.
struct CachedKey {
  Digest digest;
  int64_t copies = 0;
};

class CacheManager {
 public:
  // `hasher` gives the chain.
  static Result<std::unique_ptr<CacheManager>> Create(const CacheConfig& config, BlockHasher hasher,
                                                      const EventOptions& events = {});
  ~CacheManager();

  const CacheConfig& config() const;
  CacheUsage usage() const;

  // A scheduling pass begins: states that Mamba groups cached in the pass before can be used. To be
  // called before the first lookup of every pass.
  void BeginStep();

  // Longest cached prefix of the request's tokens, at most tokens - 1.
  PrefixHit GetComputedBlocks(CacheRequest& request);

  // Per group, the longest prefix of the request's tokens that this group alone could serve.
  std::vector<int64_t> GetComputedTokensPerGroup(CacheRequest& request);

  // Slots for the next step. False: not enough free blocks, nothing changed except that blocks out
  // of the window were released. New block ids per group are appended to `new_blocks` if it is
  // given. False too if the arguments contradict each other: nothing to compute, load or
  // (from v0.31 on) adopt, a negative count, or a hit that is not one of this manager or not at the
  // start of a request.
  bool AllocateSlots(CacheRequest& request, const AllocateArgs& args,
                     std::vector<std::vector<BlockId>>* new_blocks = nullptr);

  // Caches the blocks of the first `computed_tokens` tokens. AllocateSlots does this itself unless
  // delay_caching is set or tokens are sampled after it (asynchronous scheduling).
  void CacheBlocks(CacheRequest& request, int64_t computed_tokens);

  // The copies queued since the last call, in order: to be run before the step. Only caches with
  // PartialHitsEnabled need any.
  std::vector<BlockCopy> TakeCopies();
  // Copies that were taken have run: their blocks lose the reference that kept them.
  void ReleaseCopies(std::span<const BlockCopy> copies);

  // With zero_new_blocks: the attention groups' blocks that were taken for new tokens since the
  // last call, group by group; to be zeroed before the step runs, and before its copies. Targets of
  // copies are not among them, nor are blocks of Mamba groups. An id may be there twice. An engine
  // that sets the option has to call this: the list grows until it does.
  std::vector<BlockId> TakeBlocksToZero();

  // True if a request of this length, alone in the pool, gets every step until its end: the pool
  // has RequiredBlocks. A request for which this is false must be refused, or it waits for ever.
  // `encoder_tokens` counts for cross attention.
  bool CanEverFit(int64_t total_tokens, int64_t encoder_tokens = 0) const;

  // Releases the request's blocks, tail first; they stay cached. Also used for preemption.
  void Free(CacheRequest& request);

  // Forgets all cached blocks. False: blocks are in use, nothing changed.
  bool ResetPrefixCache();

  // Drops these blocks from the cache; blocks in use stay allocated. An id that the pool does not
  // have is an error, and nothing changed.
  Status EvictBlocks(std::span<const BlockId> blocks);

  // Events since the last call, in order of occurrence, annotated with kind and window.
  std::vector<Event> TakeEvents();
  // The same as the payload of one batch, appended to `payload`: what EncodeBatch writes for
  // TakeEvents(), without an object for each event. Steady traffic allocates nothing. Returns the
  // number of events; 0: nothing was pending, and nothing was appended. Error: a request's names
  // cannot be encoded (the message says why); the events are lost.
  Result<size_t> TakePayload(double ts, std::optional<int64_t> data_parallel_rank, Dialect dialect,
                             std::vector<uint8_t>& payload);
  // Events that wait to be taken. An engine that is idle has some after a reset: publish them too.
  size_t pending_events() const;

  // The manager's blocks, for an offload tier to read and pin. Lives as long as the manager.
  GpuBlockPool& gpu_blocks();

  // Block table of a running request in one group; empty if the request holds nothing.
  std::span<const BlockId> BlockTable(const CacheRequest& request, GroupIdx group) const;

  // Leading blocks of a running request that all running requests share; 0 for kinds that release
  // blocks early.
  int64_t CommonPrefixBlocks(const CacheRequest& request, GroupIdx group) const;

  // All cached hashes of a group, in no particular order. O(pool).
  std::vector<CachedKey> CachedKeys(GroupIdx group) const;

  // Cross-checks every invariant of the pool and the tables: O(pool). For tests and debug builds.
  Status CheckInvariants() const;

 private:
  class Impl;
  explicit CacheManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
