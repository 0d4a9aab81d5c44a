// Fleet: the workers that are followed, and how more come and some leave while queries run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/event_feeds.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/source.h"
#include "src/base/mutex.h"

namespace kvcast::router {

struct FleetWorker {
  WorkerId id;
  RouterSource config;
  std::shared_ptr<Source> source;
  std::shared_ptr<LoadRates> load_rates;  // outlives the engine's restarts
};

// The workers at one time, in order of registration. A query keeps its list to the end; a worker
// that left meanwhile answers as one that holds nothing.
struct FleetList {
  std::vector<std::shared_ptr<const FleetWorker>> workers;
  // Those of one model and routing group; empty: of any.
  SourceList Sources(std::string_view model, std::string_view routing_group) const;
  // nullptr: nobody has that name.
  std::shared_ptr<const FleetWorker> Find(std::string_view name) const;
};
using FleetView = std::shared_ptr<const FleetList>;

// Called on the subscriber's thread or a feed's, but for on_removed. One call for a worker at a
// time.
struct FleetObserver {
  std::function<void(const FleetWorker&, Seq, std::span<const uint8_t> payload)> on_payload;
  std::function<void(const FleetWorker&, const AppliedBatch&)> on_applied;
  std::function<void(const FleetWorker&)> on_reset;
  std::function<void(const FleetWorker&)> on_removed;
};

// Thread-safe. Ids are never used twice, so that what is late of a worker that left meets nobody.
class Fleet {
 public:
  // The index must outlive the fleet.
  static Result<std::unique_ptr<Fleet>> Create(const SubscriberConfig& config, PrefixIndex& index,
                                               FleetObserver observer);
  ~Fleet();

  // Adds each rank of the source, or none. kFailedPrecondition: the name is taken. Other errors
  // are those of the source. The message names the worker.
  Status Add(const RouterSource& config);
  // Polls the sources that were added. Until then their events stay with the engines.
  void BeginPolls() { feeds_->Begin(); }
  // When it returns the worker is in no new view and holds nothing. kNotFound: no such name.
  Status Remove(std::string_view name);

  FleetView view() const;
  SourceStatus stream(WorkerId worker) const;
  // See Subscriber::Contradict.
  void Contradict(WorkerId worker);
  // Events of a source that is pushed to. kNotFound: no such name; else see EventFeeds::Push.
  Status Push(std::string_view name, std::string_view body);
  // Of a source that is polled or pushed to.
  FeedCounters feed(WorkerId worker) const { return feeds_->counters(worker); }
  SourceState State(const FleetWorker& worker) const {
    return worker.source->State(stream(worker.id).state);
  }

 private:
  class WorkerSink;
  Fleet(PrefixIndex& index, FleetObserver observer)
      : index_(index), observer_(std::move(observer)) {}
  std::shared_ptr<const FleetWorker> Find(WorkerId id) const;
  void Publish(std::shared_ptr<const FleetWorker> worker);
  void Drop(const FleetWorker& worker);
  BatchResult Apply(const FleetWorker& worker, Seq seq, std::span<const uint8_t> payload);
  void Reset(const FleetWorker& worker, ResetReason reason);
  Status AddRank(const RouterSource& config) KV_REQUIRES(admin_mutex_);
  Status RemoveRank(std::string_view name) KV_REQUIRES(admin_mutex_);

  PrefixIndex& index_;
  const FleetObserver observer_;
  Mutex admin_mutex_;  // one Add or Remove at a time; the sink never takes it
  uint32_t next_id_ KV_GUARDED_BY(admin_mutex_) = 0;
  mutable Mutex view_mutex_;
  FleetView view_ KV_GUARDED_BY(view_mutex_) = std::make_shared<const FleetList>();
  std::unordered_map<WorkerId, std::shared_ptr<const FleetWorker>> by_id_
      KV_GUARDED_BY(view_mutex_);
  std::unique_ptr<Subscriber> subscriber_;  // last: their threads use the rest
  std::unique_ptr<EventFeeds> feeds_;
};

}  // namespace kvcast::router
