// SimpleOffload: a host copy of an engine's KV cache, with the groups and blocks of the GPU's.
//
// The scheduler's half of vLLM's simple KV offload: a second block pool in host memory, filled with
// GPU blocks as they are computed (eager) or before they are taken for something else (lazy), and
// searched for what the GPU does not have. It moves no bytes: every step names the blocks to copy.
// A prefix is a hit here by the GPU's own rule, for all groups together.
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

enum class StoreMode : uint8_t {
  kEager,  // what a running request has computed
  kLazy,   // the free blocks that the GPU will take next
};

struct SimpleOffloadConfig {
  CacheConfig cache;           // the GPU's; one group is full attention
  int64_t num_cpu_blocks = 0;  // block 0, the null block, included: see CpuBlocksFor
  StoreMode mode = StoreMode::kEager;
  // Lazy: how many of the free blocks that come next are kept copied. 0: LazyTargetFree.
  int64_t lazy_target_free = 0;
  int64_t num_workers = 1;  // that copy, and report, each store
  // exact_spans, announce_once and name_cleared_tier hold in any case, unless compatible.
  EventOptions events;
  std::string medium = kMediumCpu;
  // Do what vLLM's scheduler does where this one does better:
  //   nothing is said of blocks stored, removals and resets are said of medium GPU
  //   a request's blocks are looked at once: what was evicted here while it ran, and what its last
  //     step computed, is not stored when it finishes
  //   the lazy walk goes on behind the block where it stopped, although that may have moved to the
  //     end of the queue, or what is before it may have been evicted here; and GPU blocks that were
  //     copied are taken last, not next
  //   equal blocks that are stored at the same time take a block each
  //   the blocks of a copy get older first to last, group by group, so that a prefix loses its
  //     beginning first
  //   a block is stored under whatever its GPU block holds, which may be another request's
  //   a scheduler that takes less than the hit gets the beginning of the hit's blocks, although a
  //     window group would need others
  //   chunks of chunked local attention count from the end of the GPU's hit, so that blocks which
  //     attention reads may be missing from a load
  //   a reset that has to wait, for matches too, leaves what is cached to be found, and requests
  //     that run through a reset are not stored any more
  bool compatible = false;
};

// Host blocks that `capacity_bytes` buy, the null block included, where `gpu_bytes` hold
// `gpu_blocks`: a host block costs what a GPU block does. At least 1. REQUIRES: none is negative.
int64_t CpuBlocksFor(int64_t capacity_bytes, int64_t gpu_bytes, int64_t gpu_blocks);

// Twice what the next step can take of the GPU's free blocks, by the groups' kinds: a Mamba group
// 2, a window ceil(W/bs)+1, others ceil(max_in_flight_tokens/bs). REQUIRES: a validated config.
int64_t LazyTargetFree(const CacheConfig& config);

// A request of a step. Its tokens up to `confirmed_tokens` have been computed for good: outputs
// that wait to be processed do not count.
struct StepRequest {
  const CacheRequest* request = nullptr;
  int64_t confirmed_tokens = 0;
};

// Copies gpu[i] <-> cpu[i].
struct BlockPairs {
  std::vector<BlockId> gpu;
  std::vector<BlockId> cpu;

  friend bool operator==(const BlockPairs&, const BlockPairs&) = default;
};

// What the workers copy in one step. Kept by the caller and used again: its lists keep their
// memory. Loads must wait for the computation that was submitted before, which may still read what
// they write. Stores must wait for the computation of this step too: a request that is scheduled in
// it may have hit blocks that another one computes in it.
struct TransferStep {
  std::optional<int64_t> load_event;
  BlockPairs load;  // host to GPU, request by request
  std::optional<int64_t> store_event;
  BlockPairs store;                   // GPU to host
  std::vector<BlockContent> content;  // of store, by position
  bool need_flush = false;            // a request was preempted: end all copies before the step
};

// A request's way: Match, allocation on the GPU, UpdateAfterAlloc, BuildStep in every step,
// RequestFinished. Same calls, same results: nothing depends on hash order.
// Thread-compatible: one scheduler thread owns it, and the GPU's blocks.
class SimpleOffload {
 public:
  // `gpu` outlives this. Every error names the field.
  static Result<std::unique_ptr<SimpleOffload>> Create(const SimpleOffloadConfig& config,
                                                       GpuBlockPool& gpu);
  ~SimpleOffload();

  // Tokens that can be loaded behind the `local_tokens` that the GPU has: at most up to the last
  // token but one. Their blocks stay until UpdateAfterAlloc, the next Match of the request, or its
  // end. 0 where the request skips the prefix lookup. REQUIRES: the request's chain is complete.
  int64_t Match(const CacheRequest& request, int64_t local_tokens);

  // The GPU's blocks of the request are allocated, for `external_tokens` of the last Match too:
  // those are loaded in the next step. Not ok: kFailedPrecondition if fewer than matched cannot be
  // served, or more; nothing is loaded, and the request must compute them.
  Status UpdateAfterAlloc(const CacheRequest& request, int64_t external_tokens);

  // A request is preempted. To be called before its GPU blocks are freed, and before BuildStep.
  // `computed_tokens`: whose KV is there.
  void Preempt(const CacheRequest& request, int64_t computed_tokens);

  // Ends the scheduling of a step: chooses what to store of the requests scheduled, in this order,
  // and hands out all copies. Chosen GPU blocks are pinned until the copy is done.
  void BuildStep(std::span<const StepRequest> scheduled, TransferStep& step);

  // A store was done by `workers` more workers. When it was by all, its blocks can be found; if it
  // failed in one they are free again; eager tries again when the request ends, lazy when the GPU's
  // block holds something else. Not ok, and nothing changed: kNotFound for an event that is not
  // under way, kInvalidArgument for too many workers.
  Status CompleteStore(int64_t store_event, int64_t workers = 1, bool success = true);
  // A request's load was done, by all workers. Host blocks of one that failed are forgotten, so
  // that the next Match does not find them: the request must compute their tokens. Not ok:
  // kNotFound for a request that loads nothing.
  Status CompleteLoad(const std::string& request_id, bool success = true);

  // A request's load takes too long, and the request is to compute the tokens. Its GPU blocks may
  // be freed at once: what is copied stays pinned, on both sides, until CompleteLoad. The host's
  // blocks are forgotten, so that nobody else waits for them; until then the request's Match finds
  // nothing. Not ok: kNotFound for a request that loads nothing, or whose load was not handed out
  // yet.
  Status GiveUpLoad(const std::string& request_id);

  // The request ended. To be called before its GPU blocks are freed, which then may be done at
  // once: what is still being copied is pinned. `computed_tokens`: whose KV is there.
  void RequestFinished(const CacheRequest& request, int64_t computed_tokens);

  // Forgets all cached blocks. False: copies are under way; they keep their blocks until they are
  // done, which then are not cached, and a later call is true. What was not handed out yet is
  // dropped.
  bool Reset();

  // True if a step must be built, or reports are to come, although no request is scheduled.
  bool has_pending_work() const;

  // Events since the last call, in order of occurrence. A block is announced when its copy is done,
  // and removed before its slot is used again. The events are as full as those of the GPU; only
  // blocks that the GPU had before their request was scheduled here are placeholders: no tokens,
  // no parent, block_size 0.
  std::vector<Event> TakeEvents();

  const SimpleOffloadConfig& config() const;  // as validated
  CacheUsage usage() const;                   // of the host blocks
  // Host blocks under a key, for tests and tools. O(pool).
  std::vector<CachedKey> CachedKeys(GroupIdx group) const;

  // The whole state, for tests, conformance runs and debugging.
  struct State {
    std::vector<BlockId> free_blocks;                      // the next one to be taken first
    std::vector<std::pair<BlockId, BlockContent>> cached;  // by block
    // By request, as all lists of requests: the host blocks of its Match, per group.
    std::vector<std::pair<std::string, std::vector<std::vector<BlockId>>>> matches;
    // By event: the requests that load in it.
    std::vector<std::pair<int64_t, std::vector<std::string>>> loads;
    std::vector<std::string> abandoned_loads;
    std::vector<int64_t> stores;            // events under way
    std::vector<int64_t> abandoned_stores;  // of them, not to be cached
    // Requests whose blocks are looked at, or are being stored although they ended; with the
    // position in each group where the next look begins.
    std::vector<std::pair<std::string, std::vector<int64_t>>> requests;
    std::optional<BlockId> lazy_cursor;
  };
  State Inspect() const;
  // Not ok: a bug in kvcast; says what contradicts what.
  Status CheckInvariants() const;

 private:
  class Impl;
  explicit SimpleOffload(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
