// The state of an OffloadScheduler, and the steps that its calls share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kvcast/offload/offload_scheduler.h"
#include "src/offload/connector/allocated_blocks.h"
#include "src/offload/connector/chunk_describer.h"
#include "src/offload/connector/event_writer.h"
#include "src/offload/connector/fence_map.h"
#include "src/offload/connector/loading_keys.h"
#include "src/offload/connector/manager_calls.h"
#include "src/offload/connector/request_state.h"

namespace kvcast {
namespace offload {

// True: the engine hands over the states, so the scheduler does not take them from block tables.
inline bool StatesAreHandedOver(const OffloadSchedulerConfig& config) {
  return config.states_handed_over || (config.compatible && config.rules >= EngineRules::kV033);
}

}  // namespace offload

class OffloadScheduler::Impl {
 public:
  using Request = offload::RequestState;

  Impl(const OffloadSchedulerConfig& config, OffloadLayout layout,
       std::unique_ptr<OffloadManager> manager);

  Request* Find(OffloadRequestId id);

  // scheduler_lookup.cc
  class Answers;
  OffloadMatch Match(Request& request, int64_t local_tokens, int64_t now_ms);
  OffloadAnswer Ask(const Request& request, int64_t local_tokens, bool wait);
  // Both functions have an effect only before v0.32. From v0.32 on, the uses of a request decide
  // the age of its chunks (see OffloadUse).
  void Touch(const Request& request);
  void TouchTail(const Request& request);
  bool is_v032() const { return layout.rules >= EngineRules::kV032; }
  bool states_handed_over() const { return offload::StatesAreHandedOver(config); }
  // Makes the match a load within the step, if the byte budget allows it.
  void LoadWithinStep(Request& request, int64_t local_tokens, OffloadMatch& match) const;
  int64_t BytesToLoad(int64_t local_tokens, int64_t end) const;

  // scheduler_load.cc
  Status PlanLoad(Request& request, int64_t tokens, std::span<const std::vector<BlockId>> tables,
                  std::vector<OffloadKey>& keys, std::vector<int64_t>& ends, OffloadJob& job) const;
  Status Load(Request& request, int64_t external_tokens,
              std::span<const std::vector<BlockId>> tables);

  // scheduler_step.cc
  void UpdateTables(const OffloadStep& step);
  void ForgetStaleBlocks(Request& request);
  void FlushPreempted(const OffloadStep& step);
  void FlushFenced();
  void CloseFinished();
  void Close(Request& request);

  // scheduler_store.cc
  // The parts of a request that are offered to the manager in one call, and the manager's answer.
  struct StoreOffer {
    struct Chunk {
      OffloadKey key;
      size_t group = 0;
      int64_t chunk = 0;
    };
    std::vector<Chunk> chunks;  // only for an offer of whole chunks
    std::vector<OffloadKey> keys;
    std::vector<int64_t> ends;  // by key: tokens of the prefix up to the end of the part
    std::vector<bool> mask;     // by chunk of the current group: true if wanted
    StorePlan plan;             // the answer; its keys keep the order of `keys`
  };
  void StoreStates(const OffloadStep& step);
  void StoreState(Request& request, const OffloadStep::Tail& tail);
  void StoreTails(const OffloadStep& step);
  void StoreTail(Request& request, std::span<const OffloadStep::Tail> tails,
                 int64_t computed_tokens);
  bool IsKept(const Request& request, int64_t boundary, int64_t computed_tokens) const;
  BlockId TailSource(const Request& request, size_t group,
                     std::span<const OffloadStep::Tail> tails) const;
  void MakeTailJob(Request& request, int64_t boundary, std::span<const BlockId> sources);
  void Store(Request& request, int64_t tokens_after);
  void ChooseChunks(const Request& request, int64_t offloadable);
  int64_t Storable(const Request& request, size_t group, int64_t offloadable) const;
  bool IsComplete(const Request& request, size_t group, int64_t chunk) const;
  void MakeStoreJob(Request& request);
  void AddChunkToJob(const Request& request, size_t group, int64_t chunk, OffloadJob& job) const;
  StoreLimits LimitsOf(const Request& request) const;

  // scheduler_completion.cc
  struct Job {
    OffloadRequestId request;
    bool store = false;
    bool failed = false;
    // For loads. late: deadline_ms has passed, and no request waits for the keys of the load.
    // given_up: TakeLateLoads has returned the load.
    bool late = false;
    bool given_up = false;
    bool within_step = false;
    int64_t bytes = 0;
    int64_t deadline_ms = 0;
    int64_t pending_workers = 0;
    std::vector<OffloadKey> keys;
    std::vector<BlockId> blocks;  // GPU blocks that a store reads
    // The part of `blocks` that the engine may write while the request runs: blocks of groups for
    // which FreesEarly is true, blocks of states, and blocks inside which a stored prefix ends.
    std::vector<BlockId> fenced_from_start;
  };
  // True: the engine may free blocks of the group before the request ends. vLLM's connector does
  // not know that a reference window frees blocks.
  bool FreesEarly(const OffloadGroup& group) const {
    return group.window_chunks || (group.spec.reference_window > 0 && !config.compatible);
  }
  OffloadJobId AddJob(Request& request, Job job);
  void AddFencedStore(Request& request, OffloadJob job);
  void Complete(OffloadJobId id, Job job, OffloadArrivals& arrivals);
  void ForgetIfDone(OffloadRequestId id);
  void EndLoad(OffloadJobId id, const Job& job, OffloadArrivals& arrivals);
  // Makes the stores of the request fail, because a load within the step has failed. A request
  // starts such a load only without jobs, so all its stores may read blocks that steps computed
  // from the load.
  void FailStoresBasedOn(const Job& load);
  void BecomeLate(Job& job);
  void FenceFinished(const Request& request);

  // Passes the manager's events to the writer.
  void TranslateEvents();
  // Called where a later translation would lose the descriptions of keys. With `compatible`, events
  // are translated only when they are taken, as in vLLM.
  void TranslateEventsNow() {
    if (!config.compatible) TranslateEvents();
  }

  const OffloadSchedulerConfig config;
  const OffloadLayout layout;
  offload::ManagerCalls calls;
  offload::EventWriter writer;
  const offload::ChunkDescriber describer;

  absl::flat_hash_map<OffloadRequestId, std::unique_ptr<Request>> requests;
  std::vector<OffloadRequestId> finished;  // since the previous BuildStep, in order
  std::map<OffloadJobId, Job> jobs;
  OffloadJobId next_job;
  // Loads that a Reset dropped. The requests still wait for these loads.
  std::map<OffloadJobId, Job> dropped_loads;
  offload::FenceMap fences;
  offload::LoadingKeys loading;
  int64_t loading_bytes = 0;
  int64_t sync_bytes = 0;  // bytes of loads within the step that is being scheduled

  offload::AllocatedBlocks allocated;
  std::set<OffloadJobId> flush;   // for the next plan
  std::vector<OffloadJob> loads;  // for the next plan
  std::vector<OffloadJobId> before_step;
  OffloadPlan plan;

  std::vector<Event> events;
  OffloadSchedulerStats stats;

  // Scratch data of the current call; members so that their memory is reused.
  StoreOffer offer;
  std::vector<OffloadKey> touched;
};

}  // namespace kvcast
