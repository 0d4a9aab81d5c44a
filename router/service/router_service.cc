// SPDX-License-Identifier: Apache-2.0
#include "router/service/router_service.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "kvcast/wire/wire.h"
#include "router/service/api/http_log.h"
#include "router/service/api/indexer_api.h"
#include "router/service/api/own_api.h"
#include "router/service/api/source_json.h"
#include "router/service/api/static_files.h"
#include "router/service/discovery/configured_sources.h"
#include "router/service/discovery/dns_client.h"
#include "router/service/json/json_fields.h"
#include "router/service/load_setup.h"
#include "router/service/route/service_core.h"
#include "router/service/start_checks.h"
#include "src/base/clock.h"
#include "src/base/repeater.h"
#include "src/stream/net/notice_log.h"

namespace kvcast::router {
namespace {

// Period of the samples of the observations and of the diagnosis.
constexpr int64_t kSamplePeriodMs = 1000;
// PrefixIndex::Reclaim is called once per this number of samples.
constexpr int kReclaimSamples = 10;

// The states of another router are dropped after this number of samples, because they use memory.
constexpr int kPeerStateSamples = 60;

// RequestRouter calls the function under its own lock, so the generator needs no lock.
std::function<double()> SystemRandom() {
  return [engine = std::mt19937_64(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

// True: the relay gets the payloads as received. False: the payloads have another format, or
// several ranks share the endpoint. The relay then gets the decoded batches, encoded again.
bool IsRelayedAsItIs(const WorkerRegistration& source) {
  return source.format == EventFormat::kEngine && !source.rank_by_tag;
}

void RelayDecoded(Relay& relay, const FleetWorker& worker, const AppliedBatch& applied) {
  const auto post = [&relay, &config = worker.config](std::span<const uint8_t> payload) {
    relay.Post(config.model, config.worker.name, config.data_parallel_rank, payload);
  };
  std::vector<uint8_t> payload;
  if (!EncodeBatch(applied.batch, Dialect::kKvcast1, payload).ok()) return post({});  // a gap
  post(payload);
  if (applied.lacks_events) post({});
}

// Sets the functions of `observer` that write the events of sources to the log.
void ObserveForLog(SourceLog& log, FleetObserver& observer) {
  observer.on_dropped = [&log](const FleetWorker& worker, ResetReason reason,
                               uint64_t residencies) {
    log.NoteDropped(worker, reason, residencies);
  };
  observer.on_snapshot = [&log](const FleetWorker& worker) { log.NoteSnapshot(worker); };
  observer.on_state = [&log](const FleetWorker& worker, const SourceStatus& stream) {
    log.NoteState(worker, stream);
  };
}

std::string TextOfSource(const WorkerRegistration& source) { return Dump(SourceToJson(source)); }

// See ClientSourceFile::Encode.
std::string TextOfSources(const std::vector<WorkerRegistration>& sources) {
  nlohmann::json array = nlohmann::json::array();
  for (const WorkerRegistration& source : sources) array.push_back(SourceToJson(source));
  return Dump({{"sources", std::move(array)}});
}

// Makes the templates of lists apply the defaults. `List` is DnsSource or KubernetesSource.
template <typename List>
std::vector<List> WithDefaults(std::vector<List> lists, const SourceDefaults& defaults) {
  for (List& list : lists) list.source_of = WithDefaults(std::move(list.source_of), defaults);
  return lists;
}

constexpr size_t kMaxAdminConnections = 256;

HttpOptions AdminOptions(const RouterOptions& options) {
  HttpOptions admin = options.http;
  admin.address = options.admin_http->address;
  admin.port = options.admin_http->port;
  admin.unix_path = options.admin_http->unix_path;
  admin.threads = 1;
  admin.max_connections = std::min(admin.max_connections, kMaxAdminConnections);
  if (!admin.unix_path.empty()) admin.tls_certificate = admin.tls_key = "";
  return admin;
}

}  // namespace

class RouterService::Impl {
 public:
  Impl(size_t ingest_threads, InitialState initial) : core_(ingest_threads, std::move(initial)) {}
  Status Start(const RouterOptions& options);
  Result<SourceSet::Changes> Reload(const RouterOptions& options);
  void Stop();
  int http_port() const { return servers_[kPublic]->port(); }
  int admin_port() const { return servers_[kAdmin] ? servers_[kAdmin]->port() : 0; }
  ServiceCore& core() { return core_; }
  std::string relay_endpoint() const { return core_.relay ? core_.relay->endpoint() : ""; }

 private:
  Status StartRelay(RouterOptions& options);
  void LogStart(const RouterOptions& options);
  Status Follow(const RouterOptions& options);
  void FollowSavedClients();
  Status FollowConfigured(const std::vector<WorkerRegistration>& sources);
  TargetListConfig ListsOf(std::string_view kind, const LogEvent& failed) const;
  Status CheckClient(const RouterOptions& options) const;
  Status MakeLists(const RouterOptions& options);
  Status Serve(const RouterOptions& options);
  Status Listen(size_t server, const HttpOptions& options, std::vector<HttpRoute> routes);
  SavedRouter Saved() {
    return {core_.index, *core_.fleet, TextOfSource, core_.initial.secret, core_.now};
  }
  HttpTotals Totals() const;
  void Sample();
  void DropPeerState();

  ServiceCore core_;
  std::unique_ptr<ConfiguredSources> configured_;  // set by Follow; nullptr: after Stop
  static constexpr size_t kPublic = 0;
  static constexpr size_t kAdmin = 1;  // nullptr: none
  std::array<std::unique_ptr<HttpServer>, 2> servers_;
  // Pointers to the servers of servers_, for handlers. nullptr: there is no such server, or its
  // start has not ended. (A request may arrive before the end of the start.)
  std::array<std::atomic<const HttpServer*>, 2> serving_{};
  int samples_ = 0;                    // made by sampler_
  std::unique_ptr<Repeater> sampler_;  // calls Sample
};

Status RouterService::Impl::Follow(const RouterOptions& options) {
  FleetObserver observer;
  RequestRouter* const request_router = core_.request_router.get();
  Relay* const relay = core_.relay.get();
  observer.on_applied = [this, request_router, relay, also = options.on_applied](
                            const FleetWorker& worker, const AppliedBatch& applied) {
    request_router->OnBatch(worker.id, applied.batch);
    core_.observations.Note(worker, applied);
    if (relay != nullptr && !IsRelayedAsItIs(worker.config)) RelayDecoded(*relay, worker, applied);
    if (also) also(worker, applied);
  };
  if (relay != nullptr) {
    observer.on_payload = [relay](const FleetWorker& worker, Seq,
                                  std::span<const uint8_t> payload) {
      const WorkerRegistration& config = worker.config;
      if (!IsRelayedAsItIs(config)) return;
      relay->Post(config.model, config.worker.name, config.data_parallel_rank, payload);
    };
  }
  observer.on_reset = [this, request_router, relay](const FleetWorker& worker) {
    if (relay != nullptr) relay->Restart(worker.config.worker.name);
    request_router->OnReset(worker.id);
    core_.reuse.Reset(worker.id);
  };
  observer.on_removed = [this, request_router, relay](const FleetWorker& worker) {
    if (relay != nullptr) relay->Forget(worker.config.worker.name);
    request_router->OnRemoved(worker.id);
    core_.reuse.Remove(worker.id);
    core_.source_log->Forget(worker.id);
  };
  if (core_.log != nullptr) ObserveForLog(*core_.source_log, observer);
  auto fleet = Fleet::Create(
      options.subscriber, core_.index, std::move(observer), options.source_limits,
      [this](const WorkerRegistration& registration, WorkerIngest& source) {
        return core_.initial.saved->Restore(core_.index, registration, source);
      },
      options.open_log);
  if (!fleet.ok()) return fleet.status();
  core_.fleet = std::move(fleet).value();
  if (Status status = FollowConfigured(options.sources); !status.ok()) return status;
  if (core_.initial.state) FollowSavedClients();
  core_.fleet->BeginPolls();
  return Status();
}

// Adds the sources that clients had registered before the router restarted.
void RouterService::Impl::FollowSavedClients() {
  constexpr ChangeOrigin kOrigin = {.list = "state"};
  auto text = core_.initial.state->ReadClientSources();
  if (text.ok() && text->empty()) return;
  auto sources = text.ok() ? SourcesFromText(*text) : text.status();
  if (!sources.ok()) return core_.initial.state->RefuseClientSources(sources.status());
  for (const WorkerRegistration& source : *sources) {
    Status status = CheckSource(source, core_.policy, SourceOrigin::kHttp);
    if (status.ok()) status = core_.fleet->Add(source, AddedBy::kClient);
    if (status.ok()) {
      core_.source_log->NoteAdded(source, kOrigin);
    } else {
      core_.source_log->NoteFailed(source.worker.name, kOrigin, status.message());
      core_.initial.state->KeepClientSource(source);
    }
  }
}

Status RouterService::Impl::FollowConfigured(const std::vector<WorkerRegistration>& sources) {
  configured_ = std::make_unique<ConfiguredSources>(*core_.fleet, core_.policy, TextOfSource);
  const auto changes = configured_->Follow(sources);
  Status status = changes.status();
  if (changes.ok() && !changes->errors.empty()) status = changes->errors.front();
  if (!status.ok()) {
    // At the start, two sources with one name, or too many sources, are a usage error.
    const bool usage =
        status.code() == StatusCode::kFailedPrecondition || status.code() == StatusCode::kExhausted;
    return usage ? Status(StatusCode::kInvalidArgument, status.message()) : status;
  }
  return Status();
}

TargetListConfig RouterService::Impl::ListsOf(std::string_view kind, const LogEvent& failed) const {
  return {.kind = kind,
          .failed = failed,
          .text_of = TextOfSource,
          .policy = core_.policy,
          .log = core_.log};
}

Status RouterService::Impl::CheckClient(const RouterOptions& options) const {
  if (options.kubernetes_sources.empty() || core_.kubernetes_sources->has_client()) return Status();
  return Status(StatusCode::kInvalidArgument,
                "kubernetes_sources: only the program `kvcast router` can follow them");
}

// Reads no file, looks up no name and sends no request yet.
Status RouterService::Impl::MakeLists(const RouterOptions& options) {
  auto client = DnsClient::Create(options.dns_server);
  if (!client.ok()) return client.status();
  DnsSourcesConfig names = {.lists = ListsOf("dns", log_events::kSourceLookupFailed)};
  names.look = [dns = std::move(client).value()](const std::string& name) {
    return dns.Look(name);
  };
  core_.dns_sources =
      std::make_unique<DnsSources>(std::move(names), *core_.fleet, *core_.source_log);
  core_.dns_sources->Set(WithDefaults(options.dns_sources, options.source_defaults));
  KubernetesSourcesConfig slices = {.api = options.kubernetes,
                                    .lists = ListsOf("kubernetes", log_events::kSourceWatchFailed),
                                    .make_client = options.make_client};
  core_.kubernetes_sources =
      std::make_unique<KubernetesSources>(std::move(slices), *core_.fleet, *core_.source_log);
  if (Status status = CheckClient(options); !status.ok()) return status;
  core_.kubernetes_sources->Set(WithDefaults(options.kubernetes_sources, options.source_defaults));
  if (options.source_files.empty()) return Status();
  SourceFilesConfig files = {.paths = options.source_files,
                             .text_of = TextOfSource,
                             .policy = core_.policy,
                             .log = options.log};
  files.parse = [defaults = options.source_defaults](std::string_view text) {
    auto sources = SourcesFromText(text);
    if (!sources.ok()) return sources;
    for (WorkerRegistration& source : *sources) defaults.ApplyTo(source);
    return sources;
  };
  core_.source_files = std::make_unique<SourceFiles>(std::move(files), *core_.fleet);
  return Status();
}

HttpTotals RouterService::Impl::Totals() const {
  HttpTotals totals;
  for (const auto& serving : serving_) {
    const HttpServer* const server = serving;
    if (server != nullptr) totals.Add(server->counters(), server->request_counts());
  }
  return totals;
}

Status RouterService::Impl::Listen(size_t server, const HttpOptions& options,
                                   std::vector<HttpRoute> routes) {
  HttpOptions logged = options;
  if (core_.log != nullptr) {
    logged.on_answer = [&log = *core_.log](const HttpAnswer& answer) { LogAnswer(log, answer); };
  }
  Result<std::unique_ptr<HttpServer>> started = HttpServer::Start(logged, std::move(routes));
  if (!started.ok()) return started.status();
  servers_[server] = std::move(started).value();
  serving_[server] = servers_[server].get();
  return Status();
}

Status RouterService::Impl::Serve(const RouterOptions& options) {
  std::vector<HttpRoute> routes = OwnRoutes(core_, [this] { return Totals(); });
  for (auto more : {IndexerRoutes(core_), StaticRoutes()}) {
    routes.insert(routes.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
  }
  if (options.admin_http) {
    core_.state_sender = std::make_unique<StateSender>(Saved(), core_.log);
    routes.push_back(StateRoute(core_));
    if (Status status = Listen(kAdmin, AdminOptions(options), routes); !status.ok()) return status;
    std::erase_if(routes, [](const auto& route) { return route.access == AccessRole::kAdmin; });
  }
  if (Status status = Listen(kPublic, options.http, std::move(routes)); !status.ok()) return status;
  sampler_ = std::make_unique<Repeater>(0, kSamplePeriodMs, [this] { Sample(); });
  return Status();
}

void RouterService::Impl::Sample() {
  core_.observations.Sample(core_);
  core_.source_log->Sample(*core_.fleet);
  core_.reuse.Refresh(core_.index, *core_.fleet->view(), core_.steady_ms);
  if (++samples_ % kReclaimSamples == 0) core_.index.Reclaim();
  if (samples_ == kPeerStateSamples) DropPeerState();
}

// By this time, the sources of files, DNS and Kubernetes normally have taken their states.
void RouterService::Impl::DropPeerState() {
  const size_t dropped = core_.initial.saved->DropPeer();
  if (dropped == 0 || core_.log == nullptr) return;
  core_.log->Write(log_events::kPeerStateDropped, "", {{"workers", dropped}});
}

Status RouterService::Impl::StartRelay(RouterOptions& options) {
  if (options.relay.endpoint.empty()) return Status();
  auto& curve = options.relay.curve;
  if (curve && core_.log != nullptr) curve->on_notice = stream::LogNotices(*core_.log, "relay");
  auto relay = Relay::Create(options.relay);
  if (!relay.ok()) return relay.status();
  core_.relay = std::move(relay).value();
  return Status();
}

// If the start fails, the log has only the line of the error. So these lines are written after the
// start.
void RouterService::Impl::LogStart(const RouterOptions& options) {
  if (core_.log == nullptr) return;
  for (const WorkerRegistration& source : options.sources) core_.source_log->NoteAdded(source, {});
  if (core_.relay != nullptr) {
    core_.log->Write(log_events::kStreamListening, "",
                     {{"stream", "relay"},
                      {"address", core_.relay->endpoint()},
                      {"encrypted", options.relay.curve.has_value()}});
  }
  if (core_.load_sharing != nullptr && !core_.load_sharing->endpoint().empty()) {
    core_.log->Write(log_events::kStreamListening, "",
                     {{"stream", "load"},
                      {"address", core_.load_sharing->endpoint()},
                      {"encrypted", options.load.curve.has_value()}});
  }
  if (options.admin_http) LogListening(*core_.log, "admin", AdminOptions(options), admin_port());
  LogListening(*core_.log, "public", options.http, http_port());
}

Status RouterService::Impl::Start(const RouterOptions& given) {
  RouterOptions options = given;
  if (Status status = CheckAddresses(options); !status.ok()) return status;
  if (Status status = CheckLoadSharing(options); !status.ok()) return status;
  if (Status status = LoadKeys(options); !status.ok()) return status;
  core_.now = options.now ? options.now : WallSeconds;
  core_.steady_ms = SteadyMs;
  core_.policy = {.allow_remote = options.allow_remote,
                  .has_keys = options.subscriber.curve_keys.has_value(),
                  .reads_logs = options.open_log != nullptr,
                  .networks = options.source_networks};
  core_.request_router = std::make_unique<RequestRouter>(
      options.routing, options.random ? options.random : SystemRandom());
  core_.log = options.log;
  core_.source_log = std::make_unique<SourceLog>(options.log);
  if (Status status = StartRelay(options); !status.ok()) return status;
  if (Status status = Follow(options); !status.ok()) return status;
  if (Status status = MakeLists(options); !status.ok()) return status;
  const bool full_only = options.routing.policy == RoutingPolicy::kFullOnly;
  core_.queries = std::make_unique<QueryEngine>(
      core_.index, [this](WorkerId worker) { return core_.fleet->stream(worker); }, core_.now,
      full_only ? MatchPolicy::kFullOnly : MatchPolicy::kExact);
  if (Status status = StartLoadSharing(options, core_); !status.ok()) return status;
  if (Status status = Serve(options); !status.ok()) return status;
  LogStart(options);
  configured_->Begin(*core_.source_log);
  if (core_.source_files) core_.source_files->Begin(*core_.source_log);
  core_.dns_sources->Begin();
  core_.kubernetes_sources->Begin();
  if (core_.initial.state) core_.initial.state->BeginSaving(Saved(), *core_.initial.saved);
  return Status();
}

Result<SourceSet::Changes> RouterService::Impl::Reload(const RouterOptions& options) {
  if (Status status = CheckClient(options); !status.ok()) return status;
  auto changes = configured_->Follow(options.sources);
  if (!changes.ok()) return changes;
  core_.dns_sources->Set(WithDefaults(options.dns_sources, options.source_defaults));
  core_.kubernetes_sources->Set(WithDefaults(options.kubernetes_sources, options.source_defaults));
  core_.fleet->BeginPolls();
  return changes;
}

// Stops in the reverse of the start order: queries read the fleet, and the fleet's threads write to
// the index. The last save does not wait for the lists: lookups and removals can take seconds.
void RouterService::Impl::Stop() {
  core_.draining = true;
  if (configured_) configured_->Stop();
  if (core_.dns_sources) core_.dns_sources->Stop();
  if (core_.kubernetes_sources) core_.kubernetes_sources->Stop();
  sampler_.reset();
  for (const auto& server : servers_) {
    if (server) server->Stop();
  }
  if (core_.load_sharing) core_.load_sharing->Stop();
  if (core_.initial.state) core_.initial.state->StopSaving();
  core_.source_files.reset();
  core_.dns_sources.reset();
  core_.kubernetes_sources.reset();
  configured_.reset();
  core_.fleet.reset();
}

RouterService::RouterService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RouterService::~RouterService() { Stop(); }

size_t IngestThreadsFor(unsigned cores) { return std::clamp<size_t>(cores / 8, 1, 4); }

Result<std::unique_ptr<RouterService>> RouterService::Start(const RouterOptions& options) {
  if (options.ingest_threads > kMaxIndexShards) {
    return Status(StatusCode::kInvalidArgument,
                  "ingest_threads: must be at most " + std::to_string(kMaxIndexShards));
  }
  auto initial = OpenInitialState(options.state, options.peer, options.make_client, TextOfSource,
                                  TextOfSources, options.log);
  if (!initial.ok()) return initial.status();
  auto impl = std::make_unique<Impl>(options.ingest_threads > 0
                                         ? options.ingest_threads
                                         : IngestThreadsFor(std::thread::hardware_concurrency()),
                                     std::move(initial).value());
  if (Status status = impl->Start(options); !status.ok()) {
    impl->Stop();
    return status;
  }
  return std::unique_ptr<RouterService>(new RouterService(std::move(impl)));
}

size_t RouterService::ingest_threads() const { return impl_->core().index.shards(); }
int RouterService::http_port() const { return impl_->http_port(); }
int RouterService::admin_port() const { return impl_->admin_port(); }
Result<std::vector<WorkerAnswer>> RouterService::Ask(const Query& query) {
  const FleetView view = impl_->core().fleet->view();
  auto answers = impl_->core().Ask(query, view);
  if (!answers.ok()) return answers.status();
  std::unordered_map<WorkerId, const WorkerRegistration*> configs;
  for (const auto& worker : view->workers) configs.emplace(worker->id, &worker->config);
  std::vector<WorkerAnswer> named;
  for (QueryAnswer& answer : *answers) {
    const WorkerRegistration& config = *configs.at(answer.match.worker);
    const std::string& instance = config.instance.empty() ? config.worker.name : config.instance;
    named.push_back({std::move(answer), instance, config.data_parallel_rank});
  }
  return named;
}
Result<RouteDecision> RouterService::Route(const Query& query) {
  return impl_->core().Route(query);
}
Status RouterService::TakeFeedback(const Feedback& feedback) {
  return impl_->core().Take(feedback).status();
}
std::vector<WorkerReport> RouterService::workers() const {
  std::vector<WorkerReport> reports;
  Fleet& fleet = *impl_->core().fleet;
  for (const FleetView view = fleet.view(); const auto& worker : view->workers) {
    const SourceStatus stream = fleet.stream(worker->id);
    reports.push_back({.name = worker->config.worker.name,
                       .stream = stream,
                       .state = worker->source->State(stream.state),
                       .scheme = *worker->source->verdict(),
                       .counters = worker->source->counters(),
                       .insecure = worker->config.insecure});
  }
  return reports;
}
Result<SourceSet::Changes> RouterService::Reload(const RouterOptions& options) {
  return impl_->Reload(options);
}
std::string RouterService::relay_endpoint() const { return impl_->relay_endpoint(); }
RelayCounters RouterService::relay_counters() const {
  const auto& relay = impl_->core().relay;
  return relay == nullptr ? RelayCounters() : relay->counters();
}
std::string RouterService::load_endpoint() const {
  const auto& sharing = impl_->core().load_sharing;
  return sharing == nullptr ? "" : sharing->endpoint();
}
LoadSharingCounters RouterService::load_counters() const {
  const auto& sharing = impl_->core().load_sharing;
  return sharing == nullptr ? LoadSharingCounters() : sharing->counters();
}
void RouterService::Stop() { impl_->Stop(); }

}  // namespace kvcast::router
