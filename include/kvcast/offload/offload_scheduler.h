// OffloadScheduler: decides which blocks are copied between the GPU and host memory, and when.
//
// It is the scheduler's part of vLLM's offloading connector. It uses an OffloadManager, and copies
// no bytes. The calls of one engine step are
//
//   MatchedTokens, UpdateAfterAlloc   for each request that is admitted
//   BuildStep                         once; returns the copies of the workers
//   OnCompletions                     reports the copies that have ended
//
// The scheduler stores the chunks that a step completes. A store reads its blocks while the next
// step runs, and holds no reference to these blocks. Instead, the scheduler records the blocks that
// running stores read ("fences"). If the engine gives a fenced block to another request, the
// scheduler flushes the store: the store must end before the step of the other request runs. A
// block is therefore never overwritten while a copy reads it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/offload/offload_job.h"
#include "kvcast/offload/offload_manager.h"
#include "kvcast/offload/offload_observer.h"
#include "kvcast/spec/offload_rules.h"

namespace kvcast {

// The chunks that are offered for storing.
enum class OffloadPolicy : uint8_t {
  kChunkLevel,  // all chunks except the loaded chunks
  // All chunks of the request, for tiers that need whole contexts.
  kRequestLevel,
};

struct OffloadSchedulerConfig {
  OffloadLayoutConfig layout;
  // chunk_bytes has one entry per group of layout.groups. Entries of groups that are not offloaded
  // are ignored.
  OffloadConfig memory;
  // The vLLM release of the connector. It sets layout.rules and memory.rules. Must equal
  // CacheConfig::rules of the engine. Differences from v0.32 on:
  // - Lookups and stores touch no chunk (see OffloadUse). max_load_tokens applies.
  // - A lookup records the event data of pending and of readable chunks. Before v0.32, it records
  //   only the data of readable chunks.
  // - In a group with a draft head, a finished request also stores its last complete chunk.
  // - With `compatible`, a finished request does not store its last token, unless the token belongs
  //   to the prompt.
  //
  // Differences from v0.33 on:
  // - With draft heads, a prefix end inside a block is stored if the request has started a load.
  //   Before v0.33, it is not stored.
  // - With `compatible`, the scheduler behaves as with states_handed_over.
  EngineRules rules = EngineRules::kMain2026August;
  // True: for each chunk of states that should be stored, OffloadStep::tails contains the state at
  // the end of the chunk. False: the scheduler stores the states that are in the request's block
  // table when the chunk is complete. A group with prefill checkpoints needs true.
  bool states_handed_over = false;
  OffloadPolicy policy = OffloadPolicy::kChunkLevel;
  bool prompt_only = true;  // true: sampled tokens are not stored
  int64_t num_workers = 1;  // workers that report each job
  // False: a request cannot use the blocks that another request loads. A request then gains nothing
  // from waiting for the load of another request.
  bool gpu_prefix_caching = true;
  // Maximum time in milliseconds that a request waits for chunks that are not yet readable, or that
  // another request loads. The time starts at the first lookup of the wait. After this time the
  // request loads the available chunks and computes the other tokens.
  int64_t max_pending_ms = 100;
  // A load is late after late_load_ms plus its expected copy time. The expected copy time is the
  // number of bytes of this load and of all loads in flight before it, divided by
  // load_bytes_per_ms. The time starts at the last MatchedTokens of the request. With INT64_MAX, no
  // load is late. See TakeLateLoads.
  int64_t late_load_ms = 1000;
  int64_t load_bytes_per_ms = int64_t{1} << 20;  // about 1 GB/s; every link is faster
  // vLLM from v0.33 on: maximum number of bytes that one step loads before it computes; see
  // OffloadMatch::within_step. 0: no load runs within the step that admits its request.
  int64_t sync_load_budget_bytes = 0;
  EventHashForm hash_form = EventHashForm::kInt64;
  // True: stored events carry tokens, parent, kind and window. False: they carry only the hash.
  // Has no effect without memory.enable_events.
  bool self_describing_events = true;
  OffloadObserver* observer = nullptr;  // not owned; must outlive the scheduler
  // True: behave as vLLM's connector in the cases in which this scheduler differs. Implies
  // memory.compatible and layout.compatible.
  // - A lookup may stay pending without a time limit.
  // - A block that the window of a request has released is stored for this request, even if another
  //   request owns the block now. Exception: the other request gets the block in a step that also
  //   schedules the first request, or in the first step after the first request has ended.
  // - Before v0.32: a finished request stores its last token, which was never computed.
  // - Before v0.32: if a chunk of a window group lacks blocks before its last block, it is stored
  //   without these blocks, and still gives a hit.
  // - Blocks that a job does not copy leave no gap in the job. A later state of the job may then be
  //   at a position where no load looks for it.
  // - Events of windows and states carry only the hash, and no event has extra keys.
  // - If a key is evicted and stored again between two calls of TakeEvents, its event carries only
  //   the hash.
  // - After a Reset, a flushed store of a finished request may use slots that a dropped job uses.
  bool compatible = false;
};

// The options of one request for offloading.
struct OffloadRequestOptions {
  std::optional<int64_t> max_offload_tokens;  // leading tokens that may be stored; nullopt: all
  // Maximum number of loaded tokens, in whole chunks. nullopt: no limit.
  std::optional<int64_t> max_load_tokens;
};

// Result of MatchedTokens.
struct OffloadMatch {
  // Number of tokens to load after the tokens on the GPU. nullopt: not known yet; the engine must
  // call MatchedTokens again in the next step.
  std::optional<int64_t> tokens;
  // The end of the matched prefix in tokens, if this end is inside a block.
  std::optional<int64_t> tail_boundary;
  // True: the load fits into sync_load_budget_bytes, and the engine may schedule the request in the
  // same step. The step then computes at least one token of the request; see
  // OffloadPlan::before_step.
  bool within_step = false;
};

// A decision of the engine's scheduler. Lists of block ids have one entry per group of the engine,
// including the groups outside the layout. Id 0 is the null block. All spans are borrowed for the
// call.
struct OffloadStep {
  struct Scheduled {
    OffloadRequestId request;
    int64_t computed_tokens = 0;   // computed before the step
    int64_t scheduled_tokens = 0;  // computed in the step
    // True: the first step of the request, or the first step after a preemption. new_blocks is then
    // its whole block table.
    bool starts = false;
    std::span<const std::vector<BlockId>> new_blocks;  // empty: no new blocks in any group
  };
  // A Mamba state at the end of a step, in `block`. If the step ends inside a block, `block` is a
  // copy, and all Mamba groups must have a Tail. A state at the end of a chunk has its own store
  // job; the engine passes such states only with states_handed_over.
  struct Tail {
    OffloadRequestId request;
    GroupIdx group;
    BlockId block;
    int64_t boundary = 0;  // position of the state, tokens
  };
  std::span<const Scheduled> scheduled;  // the requests get host memory in this order
  std::span<const OffloadRequestId> preempted;
  std::span<const Tail> tails;  // the states of one request are adjacent
};

// The work of the workers in one step, in this order:
//   flush    before the step: submit the stores of the previous step, and the jobs of `stores` that
//            are also in `flush`; then wait for the jobs of `flush`
//   loads    submit
//   the step
//   stores   keep the other jobs, and submit them when the next step begins
struct OffloadPlan {
  std::vector<OffloadJobId> flush;  // ascending
  std::vector<OffloadJob> loads;
  std::vector<OffloadJob> stores;
  // The loads that must end before the step computes. OnCompletions names the request of such a
  // load only if the load failed and the request has not ended. The blocks that the step computed
  // for the request are then invalid, and the stores of the request that are in progress fail. A
  // completion of such a load must therefore not be reported after a store of the same request. The
  // order inside one call of OnCompletions does not matter.
  std::vector<OffloadJobId> before_step;
};

// Report of workers on one job.
struct OffloadCompletion {
  OffloadJobId job;
  // Number of workers that have reported the job since the previous completion of this job.
  int64_t workers = 1;
  // False: at least one of these workers could not copy.
  bool success = true;
};

// Requests whose loads have ended. For `loaded`, the blocks of the request hold the loaded tokens.
// For `failed`, the engine must compute all tokens that were not present before the load. A request
// of a model with window or Mamba groups has null blocks for some of these tokens. The engine must
// free all blocks of such a request and do a new lookup.
struct OffloadArrivals {
  std::vector<OffloadRequestId> loaded;
  std::vector<OffloadRequestId> failed;
  // Late loads that have ended. The engine may free their destination blocks now.
  std::vector<OffloadJobId> released;
};

// A load that TakeLateLoads has given up.
struct LateLoad {
  OffloadRequestId request;
  OffloadJobId job;
};

struct OffloadSchedulerStats {
  OffloadStats memory;
  // Counters since the last call of TakeStats. allocation_failures counts the attempts to store
  // that failed because not enough chunks could be evicted.
  int64_t allocation_failures = 0;
  int64_t failed_stores = 0;  // failed store jobs
  int64_t failed_loads = 0;
  int64_t late_loads = 0;
  int64_t expired_waits = 0;  // lookups that were pending for max_pending_ms
  // Completions of jobs that do not exist, and of stores that Reset dropped.
  int64_t unknown_completions = 0;
};

// The same calls give the same results. Thread-compatible: one scheduler thread owns the scheduler.
// A call with an unknown id has no effect, unless the comment of the call states another effect.
// With an unknown id, MatchedTokens returns 0 tokens.
class OffloadScheduler {
 public:
  // Error: kInvalidArgument; the message names the field.
  static Result<std::unique_ptr<OffloadScheduler>> Create(const OffloadSchedulerConfig& config);
  ~OffloadScheduler();

  // Adds a request. `request` is borrowed. Its chain must contain the hashes of all lookups and
  // stores. The request must exist until the BuildStep after RequestFinished. Error:
  // kInvalidArgument if the id is in use.
  Status AddRequest(OffloadRequestId id, const CacheRequest& request,
                    const OffloadRequestOptions& options = {});

  // Returns the number of tokens that can be loaded after the first `local_tokens` tokens. The
  // number is 0 if the request skips the prefix lookup, or if a load of the request has failed or
  // was late. REQUIRES: the request has no blocks and waits for its admission. `now_ms`:
  // milliseconds of a clock that does not go back.
  OffloadMatch MatchedTokens(OffloadRequestId id, int64_t local_tokens, int64_t now_ms);

  // The engine has allocated blocks for the tokens on the GPU and for `external_tokens` more
  // tokens. `external_tokens` is at most the result of MatchedTokens. `tables` is by group of the
  // engine. The call creates a load job, which the next BuildStep returns. A call with 0 external
  // tokens has no effect. The engine must keep the blocks until OnCompletions names the request,
  // even if the request ends earlier. For the loads of OffloadPlan::before_step, it must keep the
  // blocks until the load has ended.
  //
  // Errors, without any change:
  // - kNotFound: the request is unknown.
  // - kFailedPrecondition: a chunk of the load is not readable in host memory, or the request has a
  //   job in progress.
  // - kInvalidArgument: a table is missing or too short; `external_tokens` is negative, or exceeds
  //   the tokens or the chunks of the request; `external_tokens` ends at a position at which no
  //   state is stored.
  // After an error the engine must compute the tokens. A call with valid tables never fails if the
  // engine makes it in the step of MatchedTokens, with all tokens of the match.
  Status UpdateAfterAlloc(OffloadRequestId id, int64_t external_tokens,
                          std::span<const std::vector<BlockId>> tables);

  // Returns the copies of one step. The engine must call BuildStep once per step. While jobs are in
  // progress, this includes steps without scheduled requests. The result is valid until the next
  // call.
  const OffloadPlan& BuildStep(const OffloadStep& step);

  // Reports copies. A job ends when all workers have reported it. The job fails if one worker
  // fails. The chunks of a failed store are dropped; the engine must compute the tokens of a failed
  // load. Replaces the content of `arrivals` with the requests whose loads ended.
  void OnCompletions(std::span<const OffloadCompletion> completions, OffloadArrivals& arrivals);

  // Appends each load that has become late. A load is appended only once. Loads of ended requests
  // and loads within the step are never appended. The engine must treat the request as after a
  // failed load: the request gets other blocks and computes the tokens. The copy may still write to
  // the blocks of the load. The engine must therefore keep these blocks until OnCompletions returns
  // the job in `released`. Until then, no request waits for the chunks of the load and no request
  // loads them, because it is faster to compute their tokens.
  void TakeLateLoads(int64_t now_ms, std::vector<LateLoad>& late);

  // The request has ended or was aborted. The next BuildStep stores the request's remaining chunks.
  // The engine may free the request's blocks immediately, except the blocks of a running load.
  // Returns true if the request has a running load that is not within the step. `computed_tokens`:
  // number of leading tokens whose KV exists. The last sampled token has no KV. `aborted` has an
  // effect only with `compatible`: if the request was not aborted, the scheduler ignores
  // computed_tokens and counts all tokens of the request. From v0.32 on, the last token then counts
  // only if it belongs to the prompt.
  bool RequestFinished(OffloadRequestId id, int64_t computed_tokens, bool aborted);

  // Removes all chunks of host memory. The engine must call Reset between two steps. Running
  // requests are stored again from their start. Jobs in progress are flushed in the next step and
  // change no chunk. OnCompletions still reports the loads among these jobs. If there are jobs in
  // progress, the next BuildStep stores no chunks of requests that have finished. Error:
  // kFailedPrecondition if BuildStep has not returned all loads.
  Status Reset();

  // Returns the changes since the last call: the chunks that became readable in host memory, and
  // the chunks that were removed. A chunk is announced when its copy has ended. Its removal is
  // announced before another chunk uses its slots.
  std::vector<Event> TakeEvents();
  OffloadSchedulerStats TakeStats();

  // True: jobs are in progress. The engine must continue to run steps, even if no request is
  // scheduled.
  bool has_pending_work() const;
  const OffloadLayout& layout() const;
  const OffloadManager& manager() const;

  // For tests, conformance runs and debugging.
  struct RequestState {
    // By group of the layout, as of the last MatchedTokens.
    std::vector<int64_t> hit_chunks;
    std::vector<int64_t> next_stored_chunk;  // by group
    std::vector<OffloadJobId> jobs;          // in progress
  };
  std::optional<RequestState> InspectRequest(OffloadRequestId id) const;
  // Fenced blocks, and for each block the jobs that read it, ascending.
  std::vector<std::pair<BlockId, std::vector<OffloadJobId>>> FencedBlocks() const;
  std::vector<OffloadJobId> JobsInFlight() const;  // ascending
  int64_t num_requests() const;
  // After a Reset: the jobs that the next BuildStep flushes.
  std::vector<OffloadJobId> PendingFlush() const;
  OffloadJobId next_job() const;

 private:
  class Impl;
  explicit OffloadScheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
