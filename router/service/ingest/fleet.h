// Fleet: the workers that the router follows. Workers can be added and removed while queries run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/event_feeds.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/worker_ingest.h"
#include "src/base/mutex.h"
#include "src/event_log/open_log.h"

namespace kvcast::router {

// Each data-parallel rank is a worker.
struct FleetLimits {
  size_t workers = 4096;        // in total
  size_t client_workers = 256;  // added by clients
  // Limit of the residencies of all workers together; see ResidencyBudget. 0: no bound. Each worker
  // also has its own bound; see WorkerRegistration::max_residencies.
  uint64_t residencies = 0;
};
enum class AddedBy : uint8_t { kOperator, kClient };

struct FleetWorker {
  WorkerId id;
  WorkerRegistration config;
  std::shared_ptr<WorkerIngest> source;
  std::shared_ptr<LoadRates> load_rates;  // kept when the engine restarts
  AddedBy added_by = AddedBy::kOperator;
};

// The workers at one time, in order of registration. A query uses the same list until it ends. A
// worker that is removed during the query answers like a worker that holds no blocks.
struct FleetList {
  std::vector<std::shared_ptr<const FleetWorker>> workers;
  // The sources of one model and routing group. An empty argument selects all.
  SourceList Sources(std::string_view model, std::string_view routing_group) const;
  // nullptr: no worker has this name.
  std::shared_ptr<const FleetWorker> Find(std::string_view name) const;
};
using FleetView = std::shared_ptr<const FleetList>;

// on_removed is called on the thread that calls Remove. If Add fails for a rank, Add removes the
// ranks that it has added before, and on_removed is called for them on the thread that calls Add.
// If the rank that failed has been in a view, on_removed is called for it, too.
// The other functions are called on an ingestion thread, on a poller's thread, or on the thread
// that calls Push or Contradict. For each worker, only one of these other functions runs at a time.
// on_payload gets each payload before the payload is decoded. on_applied follows each applied
// batch. on_reset follows each reset, and each snapshot or repair that was applied. on_dropped
// follows each reset, and gets the number of residencies that the worker had before. on_snapshot
// follows each applied snapshot or repair. on_state follows a change of the state of a worker's
// stream; it is not called for workers of EventFeeds.
struct FleetObserver {
  std::function<void(const FleetWorker&, Seq, std::span<const uint8_t> payload)> on_payload;
  std::function<void(const FleetWorker&, const AppliedBatch&)> on_applied;
  std::function<void(const FleetWorker&)> on_reset;
  std::function<void(const FleetWorker&)> on_removed;
  std::function<void(const FleetWorker&, ResetReason, uint64_t residencies)> on_dropped;
  std::function<void(const FleetWorker&)> on_snapshot;
  std::function<void(const FleetWorker&, const SourceStatus&)> on_state;
};

// A followed worker whose state can be saved at this position.
struct FollowedWorker {
  std::shared_ptr<const FleetWorker> worker;
  SavedPosition position;
};
struct RestoredWorker {
  SavedPosition position;  // of the state
  // Add calls this function when all ranks of the source are followed. A failed Add does not call
  // it, and the next Add of the worker must get the state again.
  std::function<void()> on_followed;
};
// Restores the saved state of a new worker. nullopt: the worker starts without state. Called by
// Add, for one worker at a time.
using RestoreWorker =
    std::function<std::optional<RestoredWorker>(const WorkerRegistration&, WorkerIngest&)>;

// Thread-safe. Worker ids are never reused, so a late call for a removed worker finds no worker.
class Fleet {
 public:
  // Starts one ingestion thread for each shard of the index. The thread follows the workers of its
  // shard, so ingestion threads do not wait for each other. Each thread gets an equal part of
  // config.max_replays and of config.max_status_requests, but at least 1. The index must outlive
  // the fleet.
  static Result<std::unique_ptr<Fleet>> Create(const SubscriberConfig& config, PrefixIndex& index,
                                               FleetObserver observer, FleetLimits limits = {},
                                               RestoreWorker restore = {},
                                               OpenEventLog open_log = {});
  ~Fleet();

  // Adds all ranks of the source, or none. kFailedPrecondition: a worker has this name already.
  // kInvalidArgument: a name or an endpoint of a rank is longer than kMaxTextBytes.
  // kExhausted: there would be more workers than FleetLimits allows; the message names the limit.
  // Other errors are those of ExpandRanks, WorkerIngest::Create, OpenEventLog, Subscriber::Add and
  // EventFeeds::Add.
  Status Add(const WorkerRegistration& config, AddedBy added_by = AddedBy::kOperator);
  // Starts to poll the added sources. Before this call, their events stay in the engines.
  void BeginPolls() { feeds_->Begin(); }
  // After this call, the worker is in no new view, and holds no blocks. kNotFound: no worker has
  // this name, or the worker of this name has another id than `id`. nullopt: any id.
  Status Remove(std::string_view name, std::optional<WorkerId> id = std::nullopt);

  FleetView view() const;
  // Calls `use` while the subscriber of this shard applies no batch; see Subscriber::BetweenTurns.
  // `use` does not get the workers of EventFeeds, because other threads apply their batches. Only
  // one call runs at a time; other calls wait.
  void BetweenTurns(size_t shard,
                    const std::function<void(const std::vector<FollowedWorker>&)>& use);
  SourceStatus stream(WorkerId worker) const;
  // See Subscriber::Contradict and EventFeeds::Contradict.
  void Contradict(WorkerId worker);
  // Takes events of a source whose events are pushed. kNotFound: no worker has this name. Other
  // errors: see EventFeeds::Push.
  Status Push(std::string_view name, std::string_view body);
  // The counters of a source whose events are polled or pushed.
  FeedCounters feed(WorkerId worker) const { return feeds_->counters(worker); }
  // nullopt: the events of the worker are not in a log.
  std::optional<event_log::BridgeStatus> log(WorkerId worker) const;
  SourceState State(const FleetWorker& worker) const {
    return worker.source->State(stream(worker.id).state);
  }

 private:
  class WorkerSink;
  Fleet(PrefixIndex& index, FleetObserver observer, FleetLimits limits, RestoreWorker restore,
        OpenEventLog open_log)
      : index_(index),
        observer_(std::move(observer)),
        limits_(limits),
        restore_(std::move(restore)),
        open_log_(std::move(open_log)),
        budget_(std::make_shared<ResidencyBudget>(limits.residencies)) {}
  std::shared_ptr<const FleetWorker> Find(WorkerId id) const;
  Subscriber& SubscriberOf(WorkerId worker) const { return *subscribers_[index_.ShardOf(worker)]; }
  void Publish(std::shared_ptr<const FleetWorker> worker);
  void Drop(const FleetWorker& worker);
  BatchResult Apply(const FleetWorker& worker, Seq seq, std::span<const uint8_t> payload);
  void Reset(const FleetWorker& worker, ResetReason reason);
  Status CheckRoom(size_t more, AddedBy added_by) const KV_REQUIRES(admin_mutex_);
  // Adds RestoredWorker::on_followed to the list.
  Status AddRank(const WorkerRegistration& config, AddedBy added_by,
                 std::vector<std::function<void()>>& on_followed) KV_REQUIRES(admin_mutex_);
  Status FollowRank(const std::shared_ptr<const FleetWorker>& worker,
                    std::optional<SavedPosition> resume) KV_REQUIRES(admin_mutex_);
  Status OpenLogOf(const FleetWorker& worker, SourceConfig& source) KV_REQUIRES(admin_mutex_);
  void CloseLogOf(WorkerId worker) KV_REQUIRES(admin_mutex_);
  // Returns the errors of Remove.
  Status RemoveRank(std::string_view name, std::optional<WorkerId> id = std::nullopt)
      KV_REQUIRES(admin_mutex_);

  PrefixIndex& index_;
  const FleetObserver observer_;
  const FleetLimits limits_;
  const RestoreWorker restore_;
  const OpenEventLog open_log_;
  const std::shared_ptr<ResidencyBudget> budget_;
  Mutex admin_mutex_;  // allows one Add or Remove at a time; the sink never locks it
  uint32_t next_id_ KV_GUARDED_BY(admin_mutex_) = 0;
  Mutex between_mutex_;  // held by BetweenTurns
  mutable Mutex view_mutex_;
  FleetView view_ KV_GUARDED_BY(view_mutex_) = std::make_shared<const FleetList>();
  std::unordered_map<WorkerId, std::shared_ptr<const FleetWorker>> by_id_
      KV_GUARDED_BY(view_mutex_);
  mutable Mutex log_mutex_;
  // Of the workers whose events are in a log.
  std::unordered_map<WorkerId, OpenLog> logs_ KV_GUARDED_BY(log_mutex_);
  // These members must be declared last, because their threads use the other members.
  std::vector<std::unique_ptr<Subscriber>> subscribers_;  // by shard of the index
  std::unique_ptr<EventFeeds> feeds_;
};

}  // namespace kvcast::router
