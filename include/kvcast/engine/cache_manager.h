// CacheManager: the prefix-caching block manager of one engine, for any combination of KV-cache
// groups.
//
// It has the functions of vLLM's KVCacheManager that the scheduler calls. It looks up the cached
// prefix of a request, allocates slots for the tokens of the next step, frees blocks, and returns
// the events of these calls. The same calls give the same block ids and the same events as in vLLM.
// Thread-compatible: one thread owns the manager.
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

// The cache state of one request. The engine owns it, and must keep it until Free(request) returns.
// The engine appends sampled tokens to `tokens`; the manager extends `chain` when it needs more
// hashes.
struct CacheRequest {
  std::string id;
  std::vector<TokenId> tokens;  // prompt tokens, then sampled tokens
  int64_t prompt_tokens = 0;
  HashInputs hash_inputs;
  std::optional<int64_t> lora_id;
  std::optional<std::string> session_id;
  bool skip_prefix_lookup = false;  // for example because the request needs prompt logprobs
  // A hint of a router: other requests will begin with the first keep_prefix_tokens tokens of this
  // prompt. The manager rounds the value down to the length of a possible hit. It keeps the blocks
  // that a hit of this length needs, as if the lookup had found this shared prefix. 0: no hint; the
  // cache then behaves like vLLM's.
  int64_t keep_prefix_tokens = 0;
  // A hint of a router: no other request will need the tokens after this position, including the
  // sampled tokens. When the request has ended, the blocks that begin at this position or later are
  // evicted before all other cached blocks. Exceptions: blocks that a request has adopted from a
  // hit, and blocks that begin before shared_prefix_boundary. Lookups do not change. nullopt: no
  // hint; the cache then behaves like vLLM's.
  std::optional<int64_t> will_not_return_after;
  // kv_cache_report_mode "full": if a lookup has a hit, the manager announces the blocks of the hit
  // again.
  bool report_hits = false;

  // The manager writes the fields below.
  std::vector<Digest> chain;           // one digest per complete hash unit of `tokens`
  int64_t shared_prefix_boundary = 0;  // tokens; 0: none
};

// Result of a lookup: blocks that are cached now. No block is reserved until AllocateSlots
// succeeds.
struct PrefixHit {
  int64_t tokens = 0;  // at most the request's tokens - 1; equal for all groups
  // Per group, ceil(tokens / block_size) block ids. Id 0 (the null block) where the group needs no
  // block. The list of a group that takes no part in prefix caching is empty.
  std::vector<std::vector<BlockId>> blocks;
  // Number of tokens at the end of `tokens` that must be computed again
  // (CacheConfig::replay_tokens). If replay_tokens is equal to `tokens`, AllocateSlots treats the
  // result as no hit.
  int64_t replay_tokens = 0;
  // Number of tokens that count as computed after AllocateSlots has adopted the hit.
  int64_t computed_tokens() const { return tokens - replay_tokens; }
  // Length in tokens of a prefix that is longer than the hit and that the cache should keep. Either
  // a group already holds this prefix, or CacheRequest::keep_prefix_tokens names it. 0: none.
  int64_t shared_prefix_boundary = 0;
};

// Arguments of AllocateSlots. All counts are in tokens unless the name contains another unit.
struct AllocateArgs {
  int64_t computed_tokens = 0;   // computed before this step, without the tokens of `hit`
  int64_t new_tokens = 0;        // to compute in this step
  int64_t lookahead_tokens = 0;  // draft slots after new_tokens
  int64_t in_flight_tokens = 0;  // scheduled but not processed yet
  int64_t external_tokens = 0;   // loaded from another tier, after the hit
  int64_t encoder_tokens = 0;    // cross attention only
  // Result of the lookup; only for the first allocation of a request. Borrowed for the call.
  const PrefixHit* hit = nullptr;
  // True: the call fails if the whole sequence does not fit into the free blocks. For the admission
  // of waiting requests.
  bool full_sequence_must_fit = false;
  // True: the call fails if the allocation leaves less than the share CacheConfig::watermark of the
  // pool free.
  bool apply_watermark = false;
  int64_t reserved_blocks = 0;  // free blocks that are reserved for other requests
  // True: the content of the blocks arrives later, and the engine must then call CacheBlocks.
  bool delay_caching = false;
};

// A block copy that the engine must run before the step. The copy is necessary if a request
// continues inside a block of which only the first part is cached. Both blocks stay referenced
// until ReleaseCopies.
struct BlockCopy {
  BlockId source;
  BlockId target;
};

// Numbers of blocks of the pool.
struct CacheUsage {
  int64_t total_blocks = 0;  // without the null block
  int64_t free_blocks = 0;   // including cached blocks that no request uses
};

// Options of the events that a cache produces. The defaults give the event stream of vLLM, byte for
// byte. The options after `hash_form` are kvcast's own. Readers of vLLM's stream can decode the
// events that these options produce.
struct EventOptions {
  bool enabled = true;
  EventHashForm hash_form = EventHashForm::kInt64;
  // True: a hash is announced as stored with its first copy, and as removed with its last copy.
  // Readers then need not count copies. CacheRequest::report_hits has no effect.
  bool announce_once = false;
  // True: a stored event covers exactly the tokens of the blocks that it names. Each run of
  // adjacent blocks has its own event, with its own parent and token_offset. No stored event has an
  // empty list of blocks. A report of a hit omits the positions that the group does not hold.
  bool exact_spans = false;
  // True: AllBlocksCleared names its tier.
  bool name_cleared_tier = false;
};

// A cached hash of one group, and the number of blocks that hold it.
struct CachedKey {
  Digest digest;
  int64_t copies = 0;
};

class CacheManager {
 public:
  // `hasher` computes the hash chains of all requests. Error: kInvalidArgument for an invalid
  // config; the message names the field.
  static Result<std::unique_ptr<CacheManager>> Create(const CacheConfig& config, BlockHasher hasher,
                                                      const EventOptions& events = {});
  ~CacheManager();

  const CacheConfig& config() const;
  CacheUsage usage() const;

  // Starts a scheduling pass. The states that Mamba groups cached in the previous pass become
  // usable. The engine must call BeginStep before the first lookup of every pass.
  void BeginStep();

  // Returns the longest cached prefix of the request's tokens, at most tokens - 1. Extends
  // request.chain.
  PrefixHit GetComputedBlocks(CacheRequest& request);

  // Returns, per group, the longest prefix in tokens that this group and the groups of equal spec
  // could serve without the other groups. Extends request.chain.
  std::vector<int64_t> GetComputedTokensPerGroup(CacheRequest& request);

  // Allocates the slots for the next step. If `new_blocks` is given, the new block ids of each
  // group are appended to new_blocks[group].
  //
  // Returns false if there are not enough free blocks, or if the hit ends in a Mamba state that was
  // cached in this pass. In both cases, request.chain may be longer, and blocks outside the window
  // may be released; nothing else has changed. Also returns false, without any change, for invalid
  // arguments:
  // - a negative number of tokens
  // - no tokens to compute or to load; from EngineRules::kV032 on (vLLM: from v0.31 on), a hit with
  //   tokens is sufficient
  // - a hit whose block lists do not match the groups, the hit length or the pool
  // - a hit with tokens that is not at the start of a request
  bool AllocateSlots(CacheRequest& request, const AllocateArgs& args,
                     std::vector<std::vector<BlockId>>* new_blocks = nullptr);

  // Caches the blocks of the first `computed_tokens` tokens. AllocateSlots calls CacheBlocks
  // itself, with two exceptions: delay_caching, and tokens that are sampled after AllocateSlots
  // (asynchronous scheduling).
  void CacheBlocks(CacheRequest& request, int64_t computed_tokens);

  // Returns the copies that were queued since the last call, in order. The engine must run them
  // before the step. Copies occur only with PartialHitsEnabled, or with a Mamba group of mode
  // kAlign whose blocks are larger than hash_block_size.
  std::vector<BlockCopy> TakeCopies();
  // The engine reports that copies from TakeCopies have run. The call releases the references to
  // the blocks of these copies.
  void ReleaseCopies(std::span<const BlockCopy> copies);

  // Returns the blocks of attention groups that were allocated for new or loaded tokens since the
  // last call, group by group. The engine must zero them before it runs the copies and the step.
  // Targets of copies and blocks of Mamba groups are not in the list. A block id may occur twice.
  // With CacheConfig::zero_new_blocks the engine must call this function, because the list grows
  // until the next call. Without zero_new_blocks the list is empty.
  std::vector<BlockId> TakeBlocksToZero();

  // True: a request of this length can run every step until its end, if it is alone in the pool.
  // The pool then has at least RequiredBlocks blocks. The engine must refuse a request for which
  // the result is false. Such a request would wait without end. `encoder_tokens` counts for cross
  // attention only.
  bool CanEverFit(int64_t total_tokens, int64_t encoder_tokens = 0) const;

  // Releases the request's blocks, the last block first. The blocks stay cached. Preemption uses
  // this call too. `ended`: the request will not run again, so will_not_return_after applies.
  void Free(CacheRequest& request, bool ended = false);

  // Removes all blocks from the prefix cache. Returns false, without any change, if blocks are in
  // use.
  bool ResetPrefixCache();

  // Removes these blocks from the prefix cache. Blocks in use stay allocated.
  // kInvalidArgument, without any change: an id is not in the pool.
  Status EvictBlocks(std::span<const BlockId> blocks);

  // Returns the events that no earlier TakeEvents or TakePayload took, in order of occurrence. Each
  // stored event has the kind and the window of its group.
  std::vector<Event> TakeEvents();
  // Takes the same events as TakeEvents, and appends them to `payload` as the payload of one batch.
  // The bytes are those that EncodeBatch would write. The function creates no object per event, and
  // allocates nothing in steady state. `ts`: wall-clock time of the batch, seconds since the Unix
  // epoch. Returns the number of events. With 0 pending events it appends nothing. Error:
  // kInvalidArgument if a name in a request cannot be encoded. `payload` is then unchanged, and the
  // events are lost.
  Result<size_t> TakePayload(double ts, std::optional<int64_t> data_parallel_rank, Dialect dialect,
                             std::vector<uint8_t>& payload);
  // Number of events that TakeEvents would return. After a reset, an idle engine also has such
  // events, and must publish them.
  size_t pending_events() const;

  // The block pool, whose blocks an offload tier reads and pins. The reference is valid as long as
  // the manager exists.
  GpuBlockPool& gpu_blocks();

  // The block table of a running request in one group. Empty if the request holds no blocks. The
  // span is valid until the next call that changes the table.
  std::span<const BlockId> BlockTable(const CacheRequest& request, GroupIdx group) const;

  // The number of leading blocks of a running request that all running requests share. 0 for groups
  // that are not of a full-attention kind (IsFullKind).
  int64_t CommonPrefixBlocks(const CacheRequest& request, GroupIdx group) const;

  // All cached hashes of a group, in no particular order. O(blocks of the pool).
  std::vector<CachedKey> CachedKeys(GroupIdx group) const;

  // Checks every invariant of the pool and of the tables. O(blocks of the pool). For tests and
  // debug builds. Error: kInternal.
  Status CheckInvariants() const;

 private:
  class Impl;
  explicit CacheManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
