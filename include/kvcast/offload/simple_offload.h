// SimpleOffload: a second KV cache in host memory, with the same groups and blocks as the cache of
// the GPU.
//
// It is the scheduler's part of vLLM's simple KV offload. The block pool in host memory receives
// copies of GPU blocks. Eager mode copies the blocks when they are computed. Lazy mode copies them
// before the GPU allocates them for other content. A lookup searches the host pool for the blocks
// that the GPU does not have, by the GPU's own rule over all groups. SimpleOffload copies no bytes:
// every step names the blocks to copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/engine/gpu_block_pool.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// The blocks that are stored.
enum class StoreMode : uint8_t {
  kEager,  // blocks that a running request has computed
  kLazy,   // the free blocks that the GPU will allocate next
};

struct SimpleOffloadConfig {
  CacheConfig cache;           // the GPU's config; one group must be full attention
  int64_t num_cpu_blocks = 0;  // including block 0, the null block; see CpuBlocksFor
  StoreMode mode = StoreMode::kEager;
  // kLazy: SimpleOffload keeps copies of this number of blocks in host memory: the first blocks of
  // the GPU's free queue. 0: the value of LazyTargetFree.
  int64_t lazy_target_free = 0;
  int64_t num_workers = 1;  // workers that copy and report each store
  // Unless `compatible` is set, exact_spans, announce_once and name_cleared_tier are always on.
  EventOptions events;
  std::string medium = kMediumCpu;
  // True: behave as vLLM's scheduler in the cases in which this scheduler differs:
  // - Stored blocks have no event. Removals and resets have the medium GPU.
  // - Each block of a request is examined only once. Blocks that were evicted from host memory
  //   while the request ran, and blocks of its last step, are not stored when the request finishes.
  // - The lazy scan continues after the block where it stopped. This block may have moved to the
  //   end of the queue, and earlier blocks may have been evicted from host memory. The GPU
  //   allocates copied blocks last, not next.
  // - Equal blocks that are stored at the same time use one host block each.
  // - The blocks of a copy age from first to last, group by group, so that a prefix loses its start
  //   first.
  // - A block is stored under the current content of its GPU block, which may belong to another
  //   request.
  // - If the engine requests fewer tokens than the match has, the first blocks of the match are
  //   loaded, even if a window group needs other blocks.
  // - Chunks of chunked local attention count from the end of the GPU hit. A load may then lack
  //   blocks that attention reads.
  // - A reset must also wait for matches. While it waits, lookups still find cached blocks.
  //   Requests that run during a reset are not stored any more.
  bool compatible = false;
};

// The number of host blocks for `capacity_bytes`, including the null block. A host block has the
// size of a GPU block: `gpu_bytes` / `gpu_blocks` bytes. The result is at least 1. REQUIRES: no
// argument is negative.
int64_t CpuBlocksFor(int64_t capacity_bytes, int64_t gpu_bytes, int64_t gpu_blocks);

// Twice the number of GPU blocks that the next step can allocate. A Mamba group can allocate 2
// blocks, a window ceil(W/bs)+1 blocks, and every other cached group ceil(max_in_flight_tokens/bs)
// blocks. REQUIRES: a validated config.
int64_t LazyTargetFree(const CacheConfig& config);

// A request of a step. The first `confirmed_tokens` tokens are computed and final. Output tokens
// that are not processed yet do not count. `request` is borrowed.
struct StepRequest {
  const CacheRequest* request = nullptr;
  int64_t confirmed_tokens = 0;
};

// Pairs of blocks: gpu[i] and cpu[i] are copied to each other.
struct BlockPairs {
  std::vector<BlockId> gpu;
  std::vector<BlockId> cpu;

  friend bool operator==(const BlockPairs&, const BlockPairs&) = default;
};

// The copies of one step. The caller owns it and may reuse it; its lists then keep their memory.
//
// Loads must wait for the computation that was submitted before, because this computation may still
// read the destination blocks. Stores must also wait for the computation of this step: a request of
// this step may have hit blocks that another request computes in the same step.
struct TransferStep {
  std::optional<int64_t> load_event;   // number of the loads; nullopt: no loads
  BlockPairs load;                     // host to GPU, by request
  std::optional<int64_t> store_event;  // argument of CompleteStore; nullopt: no stores
  BlockPairs store;                    // GPU to host
  std::vector<BlockContent> content;   // content of store.gpu, by position
  // True: a request was preempted, and all copies must end before the step.
  bool need_flush = false;
};

// Calls per request: Match, allocation on the GPU, UpdateAfterAlloc, BuildStep in every step,
// RequestFinished. The same calls give the same results: no result depends on hash order.
// Thread-compatible: one scheduler thread owns this object and the GPU's block pool.
class SimpleOffload {
 public:
  // `gpu` is borrowed and must outlive this object. Error: kInvalidArgument; the message names the
  // field.
  static Result<std::unique_ptr<SimpleOffload>> Create(const SimpleOffloadConfig& config,
                                                       GpuBlockPool& gpu);
  ~SimpleOffload();

  // Returns the number of tokens that can be loaded after the `local_tokens` tokens on the GPU. The
  // last token of the request is never loaded. The host blocks of the match are kept until
  // UpdateAfterAlloc, the next Match of the request, or the end of the request. Returns 0 if the
  // request skips the prefix lookup. REQUIRES: the request's chain is complete.
  int64_t Match(const CacheRequest& request, int64_t local_tokens);

  // The engine has allocated the GPU blocks of the request, including blocks for `external_tokens`
  // tokens of the last Match. The next step loads these tokens. Error: kFailedPrecondition in three
  // cases: `external_tokens` is above the match; it is below the match and is not a possible hit;
  // the request already has a load. Nothing is loaded then, and the request must compute the
  // tokens.
  Status UpdateAfterAlloc(const CacheRequest& request, int64_t external_tokens);

  // A request is preempted. The engine must call Preempt before it frees the GPU blocks, and before
  // BuildStep. `computed_tokens`: tokens whose KV exists.
  void Preempt(const CacheRequest& request, int64_t computed_tokens);

  // Ends the scheduling of a step. The call selects blocks of the scheduled requests for storing,
  // in the order of `scheduled`. It returns all copies in `step`. Selected GPU blocks are pinned
  // until the copy has ended.
  void BuildStep(std::span<const StepRequest> scheduled, TransferStep& step);

  // Reports that `workers` more workers have ended a store. When all workers have ended the store,
  // lookups find its blocks. If one worker failed, the host blocks become free. kEager then tries
  // again when the request ends. kLazy tries again when the GPU block has other content. Errors,
  // without any change: kNotFound for an event that is not in progress; kInvalidArgument for too
  // many workers.
  Status CompleteStore(int64_t store_event, int64_t workers = 1, bool success = true);
  // Reports that all workers have ended the load of a request. If the load failed, its host blocks
  // are dropped from the cache, and the next Match does not find them; the request must compute the
  // tokens. Error: kNotFound if the request has no load, or if BuildStep has not returned it yet.
  Status CompleteLoad(const std::string& request_id, bool success = true);

  // Gives up a load that takes too long; the request must compute the tokens. The engine may free
  // its GPU blocks immediately, because the source and destination blocks of the copy stay pinned
  // until CompleteLoad. The host blocks are dropped from the cache, so that no other request waits
  // for them. Until CompleteLoad, Match of the request returns 0. Error: kNotFound if the request
  // has no load, or if BuildStep has not returned it yet.
  Status GiveUpLoad(const std::string& request_id);

  // The request has ended. The engine must call RequestFinished before it frees the GPU blocks. It
  // may free them immediately afterwards, because blocks of running copies are pinned.
  // `computed_tokens`: tokens whose KV exists.
  void RequestFinished(const CacheRequest& request, int64_t computed_tokens);

  // Removes all blocks from the cache, and drops the copies that BuildStep has not returned yet.
  // Returns false if copies are in progress. The blocks of these copies stay allocated until the
  // copies end, and are not cached afterwards. A call after the end of the copies returns true.
  bool Reset();

  // True: the engine must build a step, or must report copies, even if no request is scheduled.
  bool has_pending_work() const;

  // Returns the events since the last call, in order of occurrence. A block is announced when its
  // copy has ended. Its removal is announced before its host block is used again. The events have
  // the same fields as the events of the GPU. Exception: if the GPU held a block before the request
  // of the block was passed to this object, the event of the block is a placeholder. A placeholder
  // has no tokens and no parent, and its block_size is 0.
  std::vector<Event> TakeEvents();

  const SimpleOffloadConfig& config() const;  // after validation
  CacheUsage usage() const;                   // of the host blocks
  // The cached hashes of a group, with the number of host blocks. For tests and tools. O(blocks of
  // the pool).
  std::vector<CachedKey> CachedKeys(GroupIdx group) const;

  // The complete state. For tests, conformance runs and debugging.
  struct State {
    std::vector<BlockId> free_blocks;                      // in the order of their next use
    std::vector<std::pair<BlockId, BlockContent>> cached;  // by block
    // The host blocks of the last Match, per group. All lists of requests in this struct are sorted
    // by request id.
    std::vector<std::pair<std::string, std::vector<std::vector<BlockId>>>> matches;
    // By load event: the requests whose loads belong to it.
    std::vector<std::pair<int64_t, std::vector<std::string>>> loads;
    // Requests whose loads were in progress at a reset and have not ended yet.
    std::vector<std::string> abandoned_loads;
    std::vector<int64_t> stores;  // store events in progress, without abandoned_stores
    // Store events in progress whose blocks will not be cached, because of a reset.
    std::vector<int64_t> abandoned_stores;
    // The requests that are scanned, and ended requests whose stores are in progress. For each
    // request: by group, the position at which the next scan begins.
    std::vector<std::pair<std::string, std::vector<int64_t>>> requests;
    // kLazy: the last block that the scan examined. nullopt: there is no such block.
    std::optional<BlockId> lazy_cursor;
  };
  State Inspect() const;
  // Checks every invariant. Error: kInternal; the message names the contradiction.
  Status CheckInvariants() const;

 private:
  class Impl;
  explicit SimpleOffload(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
