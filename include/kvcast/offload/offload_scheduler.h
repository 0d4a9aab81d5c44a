// OffloadScheduler: which blocks move between the GPU and host memory, and when.
//
// The scheduler's half of vLLM's offloading connector, over an OffloadManager; it moves no bytes.
// One engine step goes
//
//   MatchedTokens, UpdateAfterAlloc   for each request that is admitted
//   BuildStep                         once: what the workers have to copy
//   OnCompletions                     what they have copied
//
// Stored are the chunks that a step completes, eagerly: a store reads its blocks one step later, so
// that it runs beside the next step, and nothing holds them. Instead the scheduler knows which
// blocks running stores read ("fences"): where one is given to somebody else, the store is flushed,
// that is, ended before that step runs. So no block is ever used again under a running copy.
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

enum class OffloadPolicy : uint8_t {
  kChunkLevel,    // what was loaded is not offered for storing again
  kRequestLevel,  // all of the request is: for tiers that want whole contexts
};

struct OffloadSchedulerConfig {
  OffloadLayoutConfig layout;
  OffloadConfig memory;  // chunk_bytes by group of the layout; says nothing for those left out
  // Whose connector: implies layout.rules and memory.rules, and from v0.32 on
  //   nothing is touched by lookups and stores (OffloadUse); max_load_tokens holds
  //   chunks that are pending are described for events too, not only those that can be loaded
  //   a finished request of a group with a draft head stores its last chunk
  //   compatible: a finished request stores no further than the last token but one, or its prompt
  // and from v0.33 on
  //   an end inside a block is kept beside a draft head too, of requests that loaded
  //   compatible: states_handed_over
  EngineRules rules = EngineRules::kMain2026August;
  // Every state at the end of a chunk that is worth storing is among OffloadStep::tails; else those
  // are stored that the request's table has when the chunk is complete.
  bool states_handed_over = false;
  OffloadPolicy policy = OffloadPolicy::kChunkLevel;
  bool prompt_only = true;  // sampled tokens are not stored
  int64_t num_workers = 1;  // each of which reports every job
  // What a load brings can be used by others afterwards; without it waiting for another request's
  // load gains nothing.
  bool gpu_prefix_caching = true;
  // A request whose chunks are there but not yet readable, or are being loaded by another one,
  // waits at most this long from its first question on; then it loads what it can and computes the
  // rest.
  int64_t max_pending_ms = 100;
  // A load is late when late_load_ms have passed since it was asked for, and the time that its
  // bytes, and those of the loads before it, take at load_bytes_per_ms: see TakeLateLoads.
  int64_t late_load_ms = 1000;
  int64_t load_bytes_per_ms = int64_t{1} << 20;  // 1 GB/s, which any link has
  // vLLM from v0.33 on: loads of so many bytes in all may be made within the step that admits their
  // requests; see OffloadMatch::within_step.
  int64_t sync_load_budget_bytes = 0;
  EventHashForm hash_form = EventHashForm::kInt64;
  // Stored events say tokens, parent, kind and window; else they name the hash alone.
  bool self_describing_events = true;
  OffloadObserver* observer = nullptr;  // not owned
  // Do what vLLM's connector does where this one does better; implies memory.compatible and
  // layout.compatible:
  //   questions may stay pending for ever
  //   blocks that a window gave up are stored as long as they have not been seen in other hands in
  //   the one step that came after, even where they are somebody else's by now
  //   a finished request stores its last token, which was never computed
  //   a chunk of a window is stored without the blocks it lacks, and is a hit all the same
  //   blocks that a job has no copy of leave no gap, so that a later state of the job may stand
  //     where no load looks for it
  //   windows and states are announced by their hash alone, and no event has extra keys
  //   a key that is evicted and stored again between two TakeEvents is announced by its hash alone
  bool compatible = false;
};

// What one request says about offloading.
struct OffloadRequestOptions {
  std::optional<int64_t> max_offload_tokens;  // leading tokens that may be stored; nullopt: all
  std::optional<int64_t> max_load_tokens;     // that are loaded, in whole chunks; nullopt: all
};

struct OffloadMatch {
  // To load, behind the tokens that the GPU has; nullopt: not known yet, ask again next step.
  std::optional<int64_t> tokens;
  std::optional<int64_t> tail_boundary;  // the prefix ends inside a block, at this many tokens
  // The load fits into sync_load_budget_bytes: the request may be scheduled in the same step, which
  // computes one token of it at least; see OffloadPlan::before_step.
  bool within_step = false;
};

// A decision of the engine's scheduler. Block ids are by group of the engine, those included that
// the layout leaves out; 0 is the null block.
struct OffloadStep {
  struct Scheduled {
    OffloadRequestId request;
    int64_t computed_tokens = 0;   // before the step
    int64_t scheduled_tokens = 0;  // in the step
    // Its first step, or the first one after a preemption: new_blocks is its whole table.
    bool starts = false;
    std::span<const std::vector<BlockId>> new_blocks;  // empty: none in any group
  };
  // A Mamba state at the end of a step, in `block`. Where the step ends inside a block, this is a
  // copy, and all Mamba groups have one. At the end of a chunk it is stored by itself; only with
  // states_handed_over are there any.
  struct Tail {
    OffloadRequestId request;
    GroupIdx group;
    BlockId block;
    int64_t boundary = 0;  // tokens
  };
  std::span<const Scheduled> scheduled;  // in the order in which they may take host memory
  std::span<const OffloadRequestId> preempted;
  std::span<const Tail> tails;  // those of one request together
};

// What the workers have to do, in this order:
//   flush    before the step: submit the stores of the last step, wait for these jobs
//   loads    submit
//   the step
//   stores   keep them and submit them when the next step begins
struct OffloadPlan {
  std::vector<OffloadJobId> flush;  // ascending
  std::vector<OffloadJob> loads;
  std::vector<OffloadJob> stores;
  // Of the loads, those that must have ended before the step computes. When they have,
  // OnCompletions names their request only if the load failed: its computed blocks are worth
  // nothing.
  std::vector<OffloadJobId> before_step;
};

struct OffloadCompletion {
  OffloadJobId job;
  int64_t workers = 1;  // that have reported the job since the last time
  bool success = true;  // false: at least one of them could not copy
};

// Requests whose loads have ended: their blocks hold the loaded tokens, or, where it failed, must
// be computed from the tokens that were there before the load. A request of a model with window or
// Mamba groups has null blocks there: it gives its blocks back and is looked up again.
struct OffloadArrivals {
  std::vector<OffloadRequestId> loaded;
  std::vector<OffloadRequestId> failed;
  // Late loads that have ended after all: the blocks that they were to fill may be freed now.
  std::vector<OffloadJobId> released;
};

struct LateLoad {
  OffloadRequestId request;
  OffloadJobId job;
};

struct OffloadSchedulerStats {
  OffloadStats memory;
  // Since the last call.
  int64_t allocation_failures = 0;  // stores put off, as nothing could be evicted
  int64_t failed_stores = 0;        // jobs
  int64_t failed_loads = 0;
  int64_t late_loads = 0;
  int64_t expired_waits = 0;        // questions that had been pending for max_pending_ms
  int64_t unknown_completions = 0;  // of jobs that do not exist, or that a Reset dropped
};

// Same calls, same results. Thread-compatible: one scheduler thread owns it. Ids that are not known
// are ignored where nothing else is said.
class OffloadScheduler {
 public:
  // Every error names the field.
  static Result<std::unique_ptr<OffloadScheduler>> Create(const OffloadSchedulerConfig& config);
  ~OffloadScheduler();

  // A request arrives. `request` is borrowed: its chain has to hold what is to be looked up or
  // stored, and it must live until the BuildStep after RequestFinished. kInvalidArgument: the id is
  // in use.
  Status AddRequest(OffloadRequestId id, const CacheRequest& request,
                    const OffloadRequestOptions& options = {});

  // How many tokens can be loaded behind the first `local_tokens`. Asked for a request without
  // blocks that waits to be admitted. `now_ms`: any clock that does not go back.
  OffloadMatch MatchedTokens(OffloadRequestId id, int64_t local_tokens, int64_t now_ms);

  // The request got blocks, `tables` by group of the engine, for the tokens that the GPU has and
  // for `external_tokens` more, no more than MatchedTokens said. Makes a load job, which BuildStep
  // hands out. The engine must keep these blocks until OnCompletions names the request, also where
  // the request ends before. Not ok, and nothing changed: the chunks are not there any more, the
  // tables are too short, or fewer tokens than were matched end where a window or a state would
  // need what is not there; compute the tokens instead. All that was matched is never refused, in
  // the same step.
  Status UpdateAfterAlloc(OffloadRequestId id, int64_t external_tokens,
                          std::span<const std::vector<BlockId>> tables);

  // Once a step, also in one that runs nothing while jobs are under way. What is returned is valid
  // until the next call.
  const OffloadPlan& BuildStep(const OffloadStep& step);

  // A job ends when all workers have reported it; a failure of one is a failure of the job. A
  // failed store is forgotten, a failed load is computed instead.
  void OnCompletions(std::span<const OffloadCompletion> completions, OffloadArrivals& arrivals);

  // Appends the loads that have become late, each once, those of requests that ended left out. Such
  // a request is as one whose load failed: it gets other blocks, and computes. The blocks of the
  // load must be kept, since the copy may still write to them, until OnCompletions has the job
  // among the released. Nobody waits for its chunks any more, and until then nobody else loads
  // them: what came too late once is quicker computed.
  void TakeLateLoads(int64_t now_ms, std::vector<LateLoad>& late);

  // The request has ended, or was aborted; the next BuildStep stores what is left. Its blocks may
  // be freed at once, but those of a running load: true if there is one. `computed_tokens`: leading
  // tokens whose KV exists, which the last sampled one is not among.
  bool RequestFinished(OffloadRequestId id, int64_t computed_tokens, bool aborted);

  // Forgets what host memory holds, between two steps. Running requests store from their beginning
  // again; jobs under way are flushed in the next step and change nothing, but that loads still
  // arrive. kFailedPrecondition: loads wait for BuildStep.
  Status Reset();

  // What became readable in host memory and what left it, since the last call. A chunk is announced
  // when its copy has ended, and its removal before another takes its slots.
  std::vector<Event> TakeEvents();
  OffloadSchedulerStats TakeStats();

  // Jobs are under way: the engine has to go on with steps, empty ones if need be.
  bool has_pending_work() const;
  const OffloadLayout& layout() const;
  const OffloadManager& manager() const;

  // For tests, conformance runs and debugging.
  struct RequestState {
    std::vector<int64_t> hit_chunks;         // by group of the layout, of the last MatchedTokens
    std::vector<int64_t> next_stored_chunk;  // by group
    std::vector<OffloadJobId> jobs;          // under way
  };
  std::optional<RequestState> InspectRequest(OffloadRequestId id) const;
  // Fenced blocks and the jobs that read them, ascending.
  std::vector<std::pair<BlockId, std::vector<OffloadJobId>>> FencedBlocks() const;
  std::vector<OffloadJobId> JobsInFlight() const;  // ascending
  int64_t num_requests() const;
  // What the next BuildStep flushes whatever happens, after a Reset.
  std::vector<OffloadJobId> PendingFlush() const;
  OffloadJobId next_job() const;

 private:
  class Impl;
  explicit OffloadScheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
