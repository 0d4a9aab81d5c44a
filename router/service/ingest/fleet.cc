// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/fleet.h"

#include <algorithm>
#include <utility>

#include "router/service/json/json_fields.h"
#include "src/base/clock.h"

namespace kvcast::router {
namespace {

// A text longer than kMaxTextBytes cannot be read back from the saved state.
Status CheckTexts(const WorkerRegistration& rank) {
  for (const std::string* const text : {&rank.worker.name, &rank.endpoint, &rank.replay_endpoint}) {
    if (text->size() <= kMaxTextBytes) continue;
    return Status(StatusCode::kInvalidArgument, "a name or an endpoint has more than " +
                                                    std::to_string(kMaxTextBytes) +
                                                    " bytes: " + text->substr(0, 100) + "...");
  }
  return Status();
}

}  // namespace

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

// The sink of one worker that a subscriber follows.
class Fleet::WorkerSink final : public ReplicaSink {
 public:
  WorkerSink(Fleet& fleet, std::shared_ptr<const FleetWorker> worker)
      : fleet_(fleet), worker_(std::move(worker)), source_(*worker_->source) {}

  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override {
    return fleet_.Apply(*worker_, seq, payload);
  }
  void Reset(ResetReason reason) override { fleet_.Reset(*worker_, reason); }
  uint64_t replacements() const override { return source_.replacements(); }
  bool TakesSnapshots() const override { return source_.takes_snapshots(); }
  void BeginSnapshot() override { source_.BeginSnapshot(); }
  bool AddToSnapshot(std::span<const uint8_t> part) override { return source_.AddToSnapshot(part); }
  bool CommitSnapshot(const PublisherStatus& status) override {
    const bool taken = source_.CommitSnapshot(status);
    if (taken && fleet_.observer_.on_reset) fleet_.observer_.on_reset(*worker_);
    if (taken && fleet_.observer_.on_snapshot) fleet_.observer_.on_snapshot(*worker_);
    return taken;
  }
  void DropSnapshot() override { source_.DropSnapshot(); }
  DigestVerdict Compare(const PublisherStatus& status) override { return source_.Compare(status); }
  bool Repairs() const override { return true; }
  uint64_t DifferingBuckets(const PublisherStatus& status) override {
    return source_.DifferingBuckets(status);
  }
  bool WantsChallenge() const override { return source_.WantsChallenge(); }
  uint64_t BeginChallenge() override { return source_.BeginChallenge(); }
  void OnChallengeAnswer(std::span<const uint8_t> payload) override {
    source_.OnChallengeAnswer(payload);
  }
  void BeginRepair(uint64_t buckets) override { source_.BeginRepair(buckets); }

 private:
  Fleet& fleet_;
  const std::shared_ptr<const FleetWorker> worker_;
  WorkerIngest& source_;
};

Result<std::unique_ptr<Fleet>> Fleet::Create(const SubscriberConfig& config, PrefixIndex& index,
                                             FleetObserver observer, FleetLimits limits,
                                             RestoreWorker restore, OpenEventLog open_log) {
  std::unique_ptr<Fleet> fleet(
      new Fleet(index, std::move(observer), limits, std::move(restore), std::move(open_log)));
  SubscriberConfig of_thread = config;
  of_thread.slow_threads = true;
  of_thread.max_replays = std::max<size_t>(1, config.max_replays / index.shards());
  of_thread.max_status_requests = std::max<size_t>(1, config.max_status_requests / index.shards());
  if (fleet->observer_.on_state) {
    of_thread.on_state = [raw = fleet.get()](WorkerId id, const SourceStatus& status) {
      if (const auto worker = raw->Find(id)) raw->observer_.on_state(*worker, status);
    };
  }
  for (size_t shard = 0; shard < index.shards(); ++shard) {
    auto subscriber = Subscriber::Create(of_thread);
    if (!subscriber.ok()) return subscriber.status();
    fleet->subscribers_.push_back(std::move(subscriber).value());
  }
  FeedSink feed_sink;
  feed_sink.apply = [raw = fleet.get()](WorkerId id, Seq seq, std::span<const uint8_t> payload) {
    // The feeds call the sink only for workers that they have, so Find succeeds.
    return raw->Apply(*raw->Find(id), seq, payload);
  };
  feed_sink.on_reset = [raw = fleet.get()](WorkerId id, ResetReason reason) {
    raw->Reset(*raw->Find(id), reason);
  };
  FeedConfig feeds;
  feeds.stale_ms = config.stale_ms;
  feeds.now_ms = config.now_ms ? config.now_ms : SteadyMs;
  fleet->feeds_ = std::make_unique<EventFeeds>(std::move(feeds), std::move(feed_sink));
  return fleet;
}

// The threads must end before the other members are destroyed, because they use these members.
Fleet::~Fleet() {
  feeds_.reset();
  subscribers_.clear();
}

BatchResult Fleet::Apply(const FleetWorker& worker, Seq seq, std::span<const uint8_t> payload) {
  if (observer_.on_payload) observer_.on_payload(worker, seq, payload);
  const int64_t begin_ns = SteadyNs();
  const BatchResult result = worker.source->OnBatch(payload, seq);
  worker.source->NoteApplyTime(SteadyNs() - begin_ns);
  return result;
}

void Fleet::Reset(const FleetWorker& worker, ResetReason reason) {
  const uint64_t residencies = worker.source->OnReset(reason);
  if (observer_.on_reset) observer_.on_reset(worker);
  if (observer_.on_dropped) observer_.on_dropped(worker, reason, residencies);
}

SourceStatus Fleet::stream(WorkerId worker) const {
  if (!feeds_->Has(worker)) return SubscriberOf(worker).status(worker);
  const auto followed = Find(worker);
  // The number is read before the status. If blocks are replaced after this read, the number in the
  // status differs from WorkerIngest::replacements.
  const uint64_t replacements = followed ? followed->source->replacements() : 0;
  SourceStatus status = feeds_->status(worker);
  status.replacements = replacements;
  return status;
}

void Fleet::Contradict(WorkerId worker) {
  feeds_->Has(worker) ? feeds_->Contradict(worker) : SubscriberOf(worker).Contradict(worker);
}

Status Fleet::Push(std::string_view name, std::string_view body) {
  const auto worker = view()->Find(name);
  if (worker == nullptr) {
    return Status(StatusCode::kNotFound, "unknown worker " + std::string(name));
  }
  return feeds_->Push(worker->id, body);
}

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
  if (observer_.on_removed) observer_.on_removed(worker);
}

Status Fleet::CheckRoom(size_t more, AddedBy added_by) const {
  const FleetView now = view();
  const auto by_clients = static_cast<size_t>(std::ranges::count(
      now->workers, AddedBy::kClient, [](const auto& worker) { return worker->added_by; }));
  const auto full = [](const char* option, size_t most) {
    return Status(StatusCode::kExhausted, std::string(option) + ": at most " +
                                              std::to_string(most) + " workers are followed");
  };
  if (now->workers.size() + more > limits_.workers) return full("max_sources", limits_.workers);
  if (added_by == AddedBy::kClient && by_clients + more > limits_.client_workers) {
    return full("max_http_sources", limits_.client_workers);
  }
  return Status();
}

Status Fleet::Add(const WorkerRegistration& config, AddedBy added_by) {
  const auto ranks = ExpandRanks(config);
  if (!ranks.ok()) return ranks.status();
  for (const WorkerRegistration& rank : *ranks) {
    if (Status status = CheckTexts(rank); !status.ok()) return status;
  }
  const MutexLock admin(admin_mutex_);
  if (Status status = CheckRoom(ranks->size(), added_by); !status.ok()) return status;
  std::vector<std::function<void()>> on_followed;
  for (size_t i = 0; i < ranks->size(); ++i) {
    const Status added = AddRank((*ranks)[i], added_by, on_followed);
    if (added.ok()) continue;
    while (i > 0) (void)RemoveRank((*ranks)[--i].worker.name);
    return added;
  }
  for (const auto& call : on_followed) call();
  return Status();
}

Status Fleet::AddRank(const WorkerRegistration& config, AddedBy added_by,
                      std::vector<std::function<void()>>& on_followed) {
  if (view()->Find(config.worker.name) != nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "a worker named " + config.worker.name + " exists already");
  }
  const WorkerId id(next_id_);
  auto source = WorkerIngest::Create(id, config, index_, budget_);
  if (!source.ok()) return source.status();
  ++next_id_;
  auto worker = std::make_shared<FleetWorker>(
      FleetWorker{id, config, std::move(source).value(),
                  std::make_shared<LoadRates>(config.load_rates), added_by});
  if (observer_.on_applied) {
    // The observer keeps a raw pointer to the worker. The source calls the observer only while the
    // worker exists.
    worker->source->set_observer([this, raw = worker.get()](const AppliedBatch& applied) {
      observer_.on_applied(*raw, applied);
    });
  }
  std::optional<RestoredWorker> restored;
  if (restore_) restored = restore_(config, *worker->source);
  std::optional<SavedPosition> resume;
  if (restored) {
    resume = std::move(restored->position);
    on_followed.push_back(std::move(restored->on_followed));
  }
  Publish(worker);
  const Status followed = FollowRank(worker, std::move(resume));
  if (followed.ok()) return followed;
  Drop(*worker);
  return Status(followed.code(), config.worker.name + ": " + followed.message());
}

Status Fleet::FollowRank(const std::shared_ptr<const FleetWorker>& worker,
                         std::optional<SavedPosition> resume) {
  const WorkerRegistration& config = worker->config;
  if (IsFeedEndpoint(config.endpoint)) {
    return feeds_->Add(worker->id, config.endpoint, config.poll_ms);
  }
  SourceConfig source = {.worker = worker->id,
                         .endpoint = config.endpoint,
                         .replay_endpoint = config.replay_endpoint,
                         .topic = config.topic,
                         .bind = config.bind,
                         .server_key = config.server_key,
                         .resume = std::move(resume)};
  if (IsLogEndpoint(config.endpoint)) {
    if (Status status = OpenLogOf(*worker, source); !status.ok()) return status;
  }
  Status added = SubscriberOf(worker->id).Add(source, std::make_shared<WorkerSink>(*this, worker));
  if (!added.ok()) CloseLogOf(worker->id);
  return added;
}

// Replaces the endpoint of a log by the endpoints of its reader.
Status Fleet::OpenLogOf(const FleetWorker& worker, SourceConfig& source) {
  if (!open_log_) {
    return Status(StatusCode::kInvalidArgument, source.endpoint + ": the router reads no logs");
  }
  OpenLogOptions options = {.repeats_are_refreshes = worker.config.worker.repeats_are_refreshes};
  if (worker.config.max_residencies > 0) {
    const auto most = static_cast<uint64_t>(worker.config.max_residencies);
    options.max_blocks = std::min(options.max_blocks, most);
  }
  auto log = open_log_(source.endpoint.substr(kLogScheme.size()), options);
  if (!log.ok()) return log.status();
  source.endpoint = log->endpoint;
  source.replay_endpoint = log->replay_endpoint;
  const MutexLock lock(log_mutex_);
  logs_.emplace(worker.id, std::move(log).value());
  return Status();
}

// The release of the reader waits for its thread, so it runs without log_mutex_.
void Fleet::CloseLogOf(WorkerId worker) {
  OpenLog closed;
  const MutexLock lock(log_mutex_);
  const auto it = logs_.find(worker);
  if (it == logs_.end()) return;
  closed = std::move(it->second);
  logs_.erase(it);
}

std::optional<event_log::BridgeStatus> Fleet::log(WorkerId worker) const {
  const MutexLock lock(log_mutex_);
  const auto it = logs_.find(worker);
  if (it == logs_.end() || !it->second.status) return std::nullopt;
  return it->second.status();
}

void Fleet::BetweenTurns(size_t shard,
                         const std::function<void(const std::vector<FollowedWorker>&)>& use) {
  const MutexLock lock(between_mutex_);
  subscribers_[shard]->BetweenTurns([&](const std::vector<FollowedPosition>& positions) {
    std::vector<FollowedWorker> workers;
    for (const FollowedPosition& followed : positions) {
      if (auto worker = Find(followed.worker)) {
        workers.push_back({std::move(worker), followed.position});
      }
    }
    use(workers);
  });
}

Status Fleet::Remove(std::string_view name, std::optional<WorkerId> id) {
  const MutexLock admin(admin_mutex_);
  return RemoveRank(name, id);
}

Status Fleet::RemoveRank(std::string_view name, std::optional<WorkerId> id) {
  const auto worker = view()->Find(name);
  if (worker == nullptr || (id && worker->id != *id)) {
    return Status(StatusCode::kNotFound, "unknown worker " + std::string(name));
  }
  feeds_->Remove(worker->id);
  SubscriberOf(worker->id).Remove(worker->id);
  CloseLogOf(worker->id);
  Drop(*worker);
  return Status();
}

}  // namespace kvcast::router
