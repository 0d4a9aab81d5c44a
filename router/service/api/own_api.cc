// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/own_api.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "router/service/api/source_change.h"
#include "router/service/api/source_json.h"
#include "router/service/api/state_json.h"
#include "router/service/json/json_fields.h"
#include "router/service/metrics/metrics.h"
#include "router/service/route/decision_json.h"
#include "router/service/route/packed_query.h"
#include "router/service/route/query.h"
#include "src/http/shared_reply.h"
#include "src/http/trace_parent.h"

namespace kvcast::router {
namespace {

constexpr int kSourceDepth = 5;
constexpr size_t kMaxSourceBytes = 1 << 20;
constexpr size_t kMaxEventBytes = 16 << 20;

Result<Query> QueryOf(const HttpRequest& request, QueryForm form) {
  const bool packed = IsPackedType(request.Header("content-type"));
  return ParseQuery(request.body, form,
                    packed ? QueryEncoding::kMessagePack : QueryEncoding::kJson);
}

HttpReply AnswerQuery(ServiceCore& core, const HttpRequest& request) {
  const Result<Query> query = QueryOf(request, QueryForm::kQuery);
  if (!query.ok()) {
    ++core.refused;
    return ErrorReply(query.status());
  }
  const auto answers = core.Ask(*query, core.fleet->view());
  return answers.ok() ? JsonReply(RenderAnswers(*answers)) : ErrorReply(answers.status());
}

HttpReply AnswerRoute(ServiceCore& core, const HttpRequest& request) {
  Result<Query> query = QueryOf(request, QueryForm::kRoute);
  if (!query.ok()) {
    ++core.refused;
    return ErrorReply(query.status());
  }
  query->traceparent = TraceParentOf(request);
  const auto decision = core.Route(*query);
  return decision.ok() ? JsonReply(RenderDecision(*decision, *query))
                       : ErrorReply(decision.status());
}

HttpReply TakeFeedback(ServiceCore& core, const HttpRequest& request) {
  const auto feedback = ParseFeedback(request.body);
  if (!feedback.ok()) return ErrorReply(feedback.status());
  const auto refuted = core.Take(*feedback);
  if (!refuted.ok()) return ErrorReply(refuted.status());
  return JsonReply(Dump({{"status", "ok"}, {"refuted", *refuted}}));
}

HttpReply TakeLoadRates(ServiceCore& core, const HttpRequest& request) {
  const auto report = ParseLoadRateReport(request.body);
  if (!report.ok()) return ErrorReply(report.status());
  const auto taken = core.Take(*report);
  if (!taken.ok()) return ErrorReply(taken.status());
  return JsonReply(
      Dump({{"status", "ok"}, {"taken", *taken}, {"ignored", report->loads.size() - *taken}}));
}

HttpReply ListSources(const ServiceCore& core) {
  Json sources = Json::array();
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    sources.push_back(ShownSource(worker->config));
  }
  return JsonReply(Dump({{"sources", std::move(sources)}}));
}

HttpReply AddSource(ServiceCore& core, const HttpRequest& request) {
  const auto json = ParseObject(request.body, kSourceDepth);
  if (!json.ok()) return RefuseSource(core, request, "", json.status());
  const auto source = SourceFromJson(*json);
  if (!source.ok()) return RefuseSource(core, request, "", source.status());
  if (const auto refusal = AddForClient(core, request, *source)) return *refusal;
  core.fleet->BeginPolls();
  return JsonReply(Dump(ShownSource(*source)), 201);
}

HttpReply RemoveSource(ServiceCore& core, const HttpRequest& request) {
  const auto name = request.query.find("name");
  if (name == request.query.end()) return HttpError(400, "name: required, as ?name=");
  const Status status = RemoveForClient(core, request, name->second);
  return status.ok() ? JsonReply(Dump({{"status", "ok"}})) : ErrorReply(status);
}

HttpReply TakeEvents(ServiceCore& core, const HttpRequest& request) {
  const auto name = request.query.find("worker");
  if (name == request.query.end()) return HttpError(400, "worker: required, as ?worker=");
  const Status status = core.fleet->Push(name->second, request.body);
  return status.ok() ? JsonReply(Dump({{"status", "ok"}})) : ErrorReply(status);
}

HttpReply AnswerHealth(const ServiceCore& core) {
  size_t synced = 0;
  size_t matched = 0;
  const FleetView view = core.fleet->view();
  for (const auto& worker : view->workers) {
    synced += core.fleet->State(*worker) == SourceState::kSynced;
    matched += worker->source->verdict()->state == SchemeState::kMatched;
  }
  return JsonReply(Dump({{"status", "ok"},
                         {"sources", view->workers.size()},
                         {"synced", synced},
                         {"schemes_matched", matched}}));
}

HttpReply AnswerReady(const ServiceCore& core) {
  Json waiting = Json::array();
  Json degraded = Json::array();
  const FleetView view = core.fleet->view();
  for (const auto& worker : view->workers) {
    const SourceState state = core.fleet->State(*worker);
    if (state == SourceState::kSynced) continue;
    const bool waits = state == SourceState::kConnecting || state == SourceState::kBootstrap;
    (waits ? waiting : degraded).push_back(worker->config.worker.name);
  }
  // A router with lists of sources is not ready before it has a worker.
  const bool has_lists = core.source_files != nullptr || core.dns_sources->has_names() ||
                         core.kubernetes_sources->has_lists();
  const bool no_source = has_lists && view->workers.empty();
  const bool ready = waiting.empty() && !no_source && !core.draining;
  Json body = {{"ready", ready}, {"waiting", std::move(waiting)}, {"degraded", degraded}};
  if (core.draining) body["draining"] = true;
  if (no_source) body["no_source"] = true;
  return JsonReply(Dump(body), ready ? 200 : 503);
}

WorkerMetrics ReadWorkerMetrics(const ServiceCore& core, const FleetWorker& worker) {
  const SourceStatus stream = core.fleet->stream(worker.id);
  const WorkerIngest& source = *worker.source;
  WorkerMetrics metrics = {
      worker.config.worker.name, source.State(stream.state),     stream,
      source.counters(),         core.index.counters(worker.id), *source.verdict(),
      source.scheme_counters()};
  if (const auto ts = source.last_batch_ts()) {
    metrics.event_age_seconds = std::max(0.0, core.now() - *ts);
  }
  metrics.groups = core.index.Groups(worker.id);
  metrics.tallies = source.group_tallies();
  metrics.rejects = core.index.GroupRejects(worker.id);
  metrics.feed = core.fleet->feed(worker.id);
  metrics.log = core.fleet->log(worker.id);
  metrics.insecure = worker.config.insecure;
  metrics.load = core.request_router->load(worker.id);
  metrics.load_rates = worker.load_rates->view(core.steady_ms());
  metrics.diagnosis = core.reuse.diagnosis(worker.id);
  metrics.reuse = core.reuse.totals(worker.id);
  return metrics;
}

HttpReply AnswerMetrics(const ServiceCore& core, HttpTotals http) {
  ServiceMetrics metrics;
  metrics.queries = core.answered;
  metrics.bad_queries = core.refused;
  metrics.http = std::move(http);
  if (core.log != nullptr) metrics.log = core.log->counters();
  metrics.routing = core.request_router->counters();
  if (core.relay) metrics.relay = core.relay->counters();
  if (core.source_files) metrics.source_files = core.source_files->reports();
  metrics.dns_sources = core.dns_sources->reports();
  metrics.kubernetes_sources = core.kubernetes_sources->reports();
  if (core.initial.state) {
    metrics.state = {core.initial.state->report(),
                     core.initial.saved->counters(StateOrigin::kFolder)};
  }
  metrics.join.join = core.initial.join;
  if (core.initial.join) {
    metrics.join.restore = core.initial.saved->counters(StateOrigin::kPeer);
  }
  if (core.state_sender) metrics.join.sent = core.state_sender->report();
  const auto peers = core.request_router->peers(static_cast<double>(core.steady_ms()));
  if (core.load_sharing && peers) metrics.peer_load = {*peers, core.load_sharing->counters()};
  metrics.latency = &core.latency;
  metrics.decision_latency = &core.decision_latency;
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    metrics.workers.push_back(ReadWorkerMetrics(core, *worker));
  }
  return {.body = RenderMetrics(metrics),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

// A GET of the lane kObserver. The reply does not depend on the request.
HttpRoute SharedRoute(std::string path, std::function<HttpReply()> make) {
  auto reply = std::make_shared<SharedReply>(std::move(make));
  return {HttpRoute::Method::kGet,
          std::move(path),
          [reply](const HttpRequest& request) { return reply->Get(request.received_us); },
          HttpRoute::Lane::kObserver,
          HttpRoute::kSmallBody,
          AccessRole::kObserve};
}

}  // namespace

HttpRoute StateRoute(ServiceCore& core) {
  return {HttpRoute::Method::kGet,
          "/v1/admin/state",
          [&core](const HttpRequest& request) { return core.state_sender->Answer(request); },
          HttpRoute::Lane::kObserver,
          HttpRoute::kSmallBody,
          AccessRole::kAdmin};
}

std::vector<HttpRoute> OwnRoutes(ServiceCore& core, std::function<HttpTotals()> http) {
  using R = const HttpRequest&;
  using enum HttpRoute::Method;
  using enum HttpRoute::Lane;
  constexpr size_t kSmall = HttpRoute::kSmallBody;
  constexpr auto kQueries = AccessRole::kQuery;
  constexpr auto kRoutes = AccessRole::kRoute;
  constexpr auto kReads = AccessRole::kObserve;
  constexpr auto kChanges = AccessRole::kAdmin;
  constexpr auto kAll = std::nullopt;
  return {
      {kPost, "/v1/query", [&core](R r) { return AnswerQuery(core, r); }, kQuery, kMaxQueryBytes,
       kQueries, true},
      {kPost, "/v1/route", [&core](R r) { return AnswerRoute(core, r); }, kQuery, kMaxQueryBytes,
       kRoutes, true},
      {kPost, "/v1/feedback", [&core](R r) { return TakeFeedback(core, r); }, kQuery, kSmall,
       kRoutes},
      {kPost, "/v1/load_rates", [&core](R r) { return TakeLoadRates(core, r); }, kObserver, kSmall,
       kRoutes},
      SharedRoute("/v1/sources", [&core] { return ListSources(core); }),
      {kPost, "/v1/sources", [&core](R r) { return AddSource(core, r); }, kChange, kMaxSourceBytes,
       kChanges},
      {kDelete, "/v1/sources", [&core](R r) { return RemoveSource(core, r); }, kChange, kSmall,
       kChanges},
      SharedRoute("/v1/state", [&core] { return JsonReply(Dump(StateJson(core))); }),
      {kGet, "/v1/events",
       [&core](R r) { return core.observations.Events(r, *core.fleet->view()); }, kObserver, kSmall,
       kReads},
      {kGet, "/v1/decisions", [&core](R r) { return core.observations.Decisions(r); }, kObserver,
       kSmall, kReads},
      {kGet, "/v1/history", [&core](R r) { return core.observations.History(r); }, kObserver,
       kSmall, kReads},
      {kPost, "/v1/events", [&core](R r) { return TakeEvents(core, r); }, kChange, kMaxEventBytes,
       kChanges},
      {kGet, "/healthz", [&core](R) { return AnswerHealth(core); }, kHealth, kSmall, kAll},
      {kGet, "/readyz", [&core](R) { return AnswerReady(core); }, kHealth, kSmall, kAll},
      SharedRoute("/metrics",
                  [&core, http = std::move(http)] { return AnswerMetrics(core, http()); }),
  };
}

}  // namespace kvcast::router
