// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/service_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/clock.h"

namespace kvcast::router {

// Like Ask, but does not count the query.
static Result<std::vector<QueryAnswer>> AnswersOf(ServiceCore& core, const Query& query,
                                                  const FleetView& view) {
  const int64_t begin_ns = SteadyNs();
  const SourceList sources = view->Sources(query.model, query.routing_group);
  Result<std::vector<QueryAnswer>> answers = core.queries->Answer(query, sources);
  if (answers.ok() && answers->empty() && !query.model.empty()) {
    answers = Status(StatusCode::kNotFound, "model: no worker serves " + query.model);
  }
  core.latency.Note(static_cast<double>(SteadyNs() - begin_ns) * 1e-9);
  return answers;
}

Result<std::vector<QueryAnswer>> ServiceCore::Ask(const Query& query, const FleetView& view) {
  Result<std::vector<QueryAnswer>> answers = AnswersOf(*this, query, view);
  ++(answers.ok() ? answered : refused);
  return answers;
}

// The same token ids can stand for different texts in two models.
static Status CheckOneModel(const Query& query, const FleetList& fleet) {
  if (!query.model.empty() || fleet.workers.empty()) return Status();
  const std::string& first = fleet.workers[0]->config.model;
  const bool one = std::all_of(fleet.workers.begin(), fleet.workers.end(),
                               [&](const auto& worker) { return worker->config.model == first; });
  if (one) return Status();
  return Status(StatusCode::kInvalidArgument,
                "model: required, because the workers serve several models");
}

// Sets load_costs and cache_tokens of each answer. The search for a worker starts at the previous
// match, because answers are mostly in the order of the workers.
static void AddWorkerFacts(const FleetList& fleet, int64_t now_ms,
                           std::vector<QueryAnswer>& answers) {
  const size_t workers = fleet.workers.size();
  size_t at = 0;
  for (QueryAnswer& answer : answers) {
    for (size_t tried = 0; tried < workers; ++tried, at = (at + 1) % workers) {
      if (fleet.workers[at]->id != answer.match.worker) continue;
      answer.load_costs = fleet.workers[at]->load_rates->costs(now_ms);
      answer.cache_tokens = fleet.workers[at]->source->cache_tokens();
      break;
    }
  }
}

// Forgets the load of the workers of `earlier` that were removed since. Must be called after
// RequestRouter has used a worker of `earlier`: if the worker was removed before that,
// RequestRouter has stored load for a removed worker. A second OnRemoved of a worker is harmless,
// because a worker's id is never used again.
static void ForgetRemoved(ServiceCore& core, const FleetView& earlier) {
  const FleetView now = core.fleet->view();
  if (now == earlier) return;
  // A newer view has the workers that are left in the same order, and new workers after them.
  auto left = now->workers.begin();
  for (const auto& worker : earlier->workers) {
    if (left != now->workers.end() && *left == worker) {
      ++left;
    } else {
      core.request_router->OnRemoved(worker->id);
    }
  }
}

// Like Route, but does not count the query.
static Result<RouteDecision> DecisionOf(ServiceCore& core, const Query& query) {
  const int64_t begin_ns = SteadyNs();
  const FleetView view = core.fleet->view();
  if (Status status = CheckOneModel(query, *view); !status.ok()) return status;
  auto answers = AnswersOf(core, query, view);
  if (!answers.ok()) return answers.status();
  const int64_t now_ms = core.steady_ms();
  AddWorkerFacts(*view, now_ms, *answers);
  auto decision = core.request_router->Decide(query, std::move(answers).value(),
                                              static_cast<double>(SteadyNs()) * 1e-6);
  ForgetRemoved(core, view);
  if (decision.ok() && query.book) core.observations.Note(*decision, core.now());
  core.decision_latency.Note(static_cast<double>(SteadyNs() - begin_ns) * 1e-9);
  return decision;
}

Result<RouteDecision> ServiceCore::Route(const Query& query) {
  Result<RouteDecision> decision = DecisionOf(*this, query);
  ++(decision.ok() ? answered : refused);
  return decision;
}

Result<size_t> ServiceCore::Take(const LoadRateReport& report) {
  const auto worker = fleet->view()->Find(report.worker);
  if (worker == nullptr) return Status(StatusCode::kNotFound, "unknown worker " + report.worker);
  size_t taken = 0;
  for (const LoadMeasurement& load : report.loads) {
    taken += worker->load_rates->Note(load, steady_ms()) == LoadReport::kTaken;
  }
  return taken;
}

static Result<bool> TakeAdmission(ServiceCore& core, const Feedback& feedback) {
  // RequestRouter has the worker and the prediction of the request id.
  const auto booked = core.request_router->Admit(feedback.request_id, feedback.reused_tokens);
  if (!booked.ok()) return booked.status();
  if (!booked->first) return false;
  const auto worker = core.fleet->view()->Find(booked->worker);
  if (worker == nullptr) return Status(StatusCode::kNotFound, "unknown worker " + booked->worker);
  const std::vector<GroupSpec> groups = core.index.Groups(worker->id);
  const auto limiting_group = booked->limiting_group;
  const bool known = limiting_group && *limiting_group < std::ssize(groups);
  const auto kind = known ? SpecKindName(groups[static_cast<size_t>(*limiting_group)].kind) : "";
  core.reuse.Note(
      worker->id, kind,
      {.predicted_tokens = booked->predicted_tokens, .reused_tokens = feedback.reused_tokens});
  // If the prediction follows another rule than the engine's, a difference does not refute the
  // worker's state.
  if (core.request_router->policy() == RoutingPolicy::kFullOnly) return false;
  const bool comparable =
      booked->comparable && (!feedback.next_seq || *feedback.next_seq == booked->next_seq);
  const bool refuted =
      worker->source->NoteReuse(booked->predicted_tokens, feedback.reused_tokens, comparable);
  if (refuted) core.fleet->Contradict(worker->id);
  return refuted;
}

Result<bool> ServiceCore::Take(const Feedback& feedback) {
  if (feedback.event == Feedback::Event::kAdmitted) return TakeAdmission(*this, feedback);
  if (feedback.event != Feedback::Event::kLoad) {
    const Status status = request_router->Take(feedback, static_cast<double>(SteadyNs()) * 1e-6);
    return status.ok() ? Result<bool>(false) : Result<bool>(status);
  }
  const FleetView view = fleet->view();
  const auto worker = view->Find(feedback.worker);
  if (worker == nullptr) return Status(StatusCode::kNotFound, "unknown worker " + feedback.worker);
  request_router->SetQueue(worker->id, feedback.queued_requests);
  ForgetRemoved(*this, view);
  return false;
}

HttpReply ErrorReply(const Status& status) {
  switch (status.code()) {
    case StatusCode::kNotFound:
      return HttpError(404, status.message());
    case StatusCode::kFailedPrecondition:
      return HttpError(409, status.message());
    case StatusCode::kUnavailable:
    case StatusCode::kExhausted:
      return HttpError(503, status.message());
    case StatusCode::kInternal:
      return HttpError(500, status.message());
    default:
      return HttpError(400, status.message());
  }
}

}  // namespace kvcast::router
