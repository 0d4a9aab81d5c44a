// SPDX-License-Identifier: Apache-2.0
#include "router/service/fleet.h"

#include <algorithm>
#include <utility>

namespace kvcast::router {

SourceList FleetList::Sources(std::string_view model, std::string_view routing_group) const {
  SourceList sources;
  for (const auto& worker : workers) {
    if (!model.empty() && worker->config.model != model) continue;
    if (!routing_group.empty() && worker->config.routing_group != routing_group) continue;
    sources.push_back(worker->source);
  }
  return sources;
}

std::shared_ptr<const FleetWorker> FleetList::Find(std::string_view name) const {
  const auto it = std::find_if(workers.begin(), workers.end(), [name](const auto& worker) {
    return worker->config.worker.name == name;
  });
  return it == workers.end() ? nullptr : *it;
}

Result<std::unique_ptr<Fleet>> Fleet::Create(const SubscriberConfig& config, PrefixIndex& index,
                                             FleetObserver observer) {
  std::unique_ptr<Fleet> fleet(new Fleet(index, std::move(observer)));
  SubscriberSink sink;
  // The subscriber calls only for workers that are followed, and those are found.
  sink.apply = [raw = fleet.get()](WorkerId id, Seq seq, std::span<const uint8_t> payload) {
    const auto worker = raw->Find(id);
    if (raw->observer_.on_payload) raw->observer_.on_payload(*worker, seq, payload);
    return worker->source->OnBatch(payload, seq);
  };
  sink.begin_snapshot = [raw = fleet.get()](WorkerId id) {
    raw->Find(id)->source->BeginSnapshot();
  };
  sink.add_to_snapshot = [raw = fleet.get()](WorkerId id, std::span<const uint8_t> payload) {
    return raw->Find(id)->source->AddToSnapshot(payload);
  };
  sink.commit_snapshot = [raw = fleet.get()](WorkerId id, const PublisherStatus& status) {
    const auto worker = raw->Find(id);
    const bool taken = worker->source->CommitSnapshot(status);
    if (taken && raw->observer_.on_reset) raw->observer_.on_reset(*worker);
    return taken;
  };
  sink.drop_snapshot = [raw = fleet.get()](WorkerId id) { raw->Find(id)->source->DropSnapshot(); };
  sink.compare = [raw = fleet.get()](WorkerId id, const PublisherStatus& status) {
    return raw->Find(id)->source->Compare(status);
  };
  sink.differing_buckets = [raw = fleet.get()](WorkerId id, const PublisherStatus& status) {
    return raw->Find(id)->source->DifferingBuckets(status);
  };
  sink.begin_repair = [raw = fleet.get()](WorkerId id, uint64_t buckets) {
    raw->Find(id)->source->BeginRepair(buckets);
  };
  sink.on_reset = [raw = fleet.get()](WorkerId id, ResetReason reason) {
    const auto worker = raw->Find(id);
    worker->source->OnReset(reason);
    if (raw->observer_.on_reset) raw->observer_.on_reset(*worker);
  };
  auto subscriber = Subscriber::Create(config, std::move(sink));
  if (!subscriber.ok()) return subscriber.status();
  fleet->subscriber_ = std::move(subscriber).value();
  return fleet;
}

// The subscriber first: its thread reads the maps.
Fleet::~Fleet() { subscriber_.reset(); }

FleetView Fleet::view() const {
  const MutexLock lock(view_mutex_);
  return view_;
}

std::shared_ptr<const FleetWorker> Fleet::Find(WorkerId id) const {
  const MutexLock lock(view_mutex_);
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

void Fleet::Publish(std::shared_ptr<const FleetWorker> worker) {
  const MutexLock lock(view_mutex_);
  auto next = std::make_shared<FleetList>(*view_);
  by_id_.emplace(worker->id, worker);
  next->workers.push_back(std::move(worker));
  view_ = std::move(next);
}

void Fleet::Drop(const FleetWorker& worker) {
  {
    const MutexLock lock(view_mutex_);
    auto next = std::make_shared<FleetList>(*view_);
    std::erase_if(next->workers, [&](const auto& other) { return other->id == worker.id; });
    by_id_.erase(worker.id);
    view_ = std::move(next);
  }
  index_.RemoveWorker(worker.id);
}

Status Fleet::Add(const RouterSource& config) {
  const MutexLock admin(admin_mutex_);
  if (view()->Find(config.worker.name) != nullptr) {
    return Status(StatusCode::kFailedPrecondition, "two sources are named " + config.worker.name);
  }
  const WorkerId id(next_id_);
  auto source = Source::Create(id, config, index_);
  if (!source.ok()) return source.status();
  ++next_id_;
  auto worker = std::make_shared<FleetWorker>(FleetWorker{id, config, std::move(source).value()});
  if (observer_.on_applied) {
    // The source does not outlive the worker that its observer names.
    worker->source->set_observer([this, raw = worker.get()](const AppliedBatch& applied) {
      observer_.on_applied(*raw, applied);
    });
  }
  Publish(worker);
  const Status followed =
      subscriber_->Add({id, config.endpoint, config.replay_endpoint, config.topic, config.bind});
  if (followed.ok()) return followed;
  Drop(*worker);
  return Status(followed.code(), config.worker.name + ": " + followed.message());
}

Status Fleet::Remove(std::string_view name) {
  const MutexLock admin(admin_mutex_);
  const auto worker = view()->Find(name);
  if (worker == nullptr) {
    return Status(StatusCode::kNotFound, "unknown worker " + std::string(name));
  }
  subscriber_->Remove(worker->id);
  Drop(*worker);
  if (observer_.on_removed) observer_.on_removed(*worker);
  return Status();
}

}  // namespace kvcast::router
