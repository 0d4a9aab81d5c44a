// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/demo/demo_fleet.h"
#include "apps/demo/demo_router.h"
#include "apps/engine/engine_setup.h"
#include "apps/support/progress.h"
#include "apps/support/stop.h"
#include "router/service/config_json.h"
#include "router/service/router_service.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr double kStallSeconds = 30;  // the run fails if no engine sends a message for so long
constexpr double kStopDeadlineSeconds = 10;
constexpr double kAuditStallSeconds = 10;

std::vector<std::string> EngineArguments(const DemoOptions& options, double speed,
                                         const PeerDialect& dialect) {
  const CacheOptions& cache = options.cache;
  std::vector<std::string> arguments = {"--model",
                                        cache.model,
                                        "--engine-rules",
                                        cache.rules,
                                        "--draft-tokens",
                                        std::to_string(cache.draft_tokens),
                                        "--retention",
                                        cache.retention,
                                        "--hash-algo",
                                        cache.hash_algorithm,
                                        "--hash-form",
                                        cache.hash_form,
                                        "--dialect",
                                        std::string(dialect.name()),
                                        "--max-batched-tokens",
                                        std::to_string(cache.max_batched_tokens),
                                        "--prefill-rate",
                                        std::to_string(cache.prefill_rate),
                                        "--speed",
                                        std::to_string(speed)};
  if (cache.blocks > 0) {
    arguments.insert(arguments.end(), {"--blocks", std::to_string(cache.blocks)});
  }
  // Do not give the router this seed: the hashes of such an engine cannot be computed.
  const std::string seed = dialect.of_engine() ? cache.hash_seed : "of another engine";
  if (!seed.empty()) arguments.insert(arguments.end(), {"--hash-seed", seed});
  if (cache.cpu_blocks > 0) {
    arguments.insert(arguments.end(),
                     {"--cpu-blocks", std::to_string(cache.cpu_blocks), "--offload", cache.offload,
                      "--blocks-per-chunk", std::to_string(cache.blocks_per_chunk), "--load-rate",
                      std::to_string(cache.load_rate), "--device", cache.device});
  }
  if (cache.announce_once) arguments.emplace_back("--announce-once");
  if (cache.exact_spans) arguments.emplace_back("--exact-spans");
  return arguments;
}

// The engines take the dialects in turn.
std::vector<std::vector<std::string>> FleetArguments(const DemoOptions& options, double speed,
                                                     const std::vector<PeerDialect>& dialects) {
  std::vector<std::vector<std::string>> arguments;
  for (size_t i = 0; i < static_cast<size_t>(options.engines); ++i) {
    arguments.push_back(EngineArguments(options, speed, dialects[i % dialects.size()]));
  }
  return arguments;
}

class RoutedRun {
 public:
  RoutedRun(const DemoOptions& options, const std::vector<TraceRequest>& trace,
            RoutingPolicy policy, double speed, const CacheConfig& cache)
      : options_(options),
        trace_(trace),
        speed_(speed),
        cache_(cache),
        audit_(static_cast<size_t>(options.engines),
               MakeWorkerConfig(options.cache, cache, "audited"), cache.hash_block_size),
        predicted_(trace.size(), 0),
        routed_at_(trace.size(), 0),
        names_(trace.size()) {
    result_.policy = policy;
  }

  Result<RunResult> Run();

 private:
  void TakeResults();
  Status RouteAll(Progress& progress);
  Status AwaitAll(Progress& progress);
  Status AwaitAudit();
  Status StartService(const CacheConfig& cache);
  Status ServeUntilStopped();
  std::optional<size_t> AskService(size_t number, const std::vector<TokenId>& prompt);
  void Tell(router::Feedback::Event event, int64_t number, int64_t reused = 0);
  Status Listen(double seconds);
  void RouteOne(size_t number);
  void OnMessage(const ControlMessage& message);
  void OnAdmitted(size_t engine, const json& report);
  void OnTotals(size_t engine, const json& report);
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  size_t EngineIndex(const std::string& name) const;

  const DemoOptions& options_;
  const std::vector<TraceRequest>& trace_;
  const double speed_;
  const CacheConfig& cache_;
  const Clock::time_point start_ = Clock::now();
  double last_message_s_ = 0;
  ExactnessAudit audit_;
  std::unique_ptr<EngineFleet> fleet_;
  std::unique_ptr<DemoRouter> router_;  // destroyed before audit_: its thread feeds the audit
  std::unique_ptr<router::RouterService> service_;  // only with options_.serve
  std::vector<int64_t> predicted_;
  std::vector<double> routed_at_;
  double first_token_sum_s_ = 0;
  int64_t first_tokens_ = 0;
  std::vector<PromptNames> names_;
  int64_t done_ = 0;
  RunResult result_;
};

Result<RunResult> RoutedRun::Run() {
  const auto dialects = DialectsOf(options_.cache, options_.dialects);
  if (!dialects.ok()) return dialects.status();
  auto fleet = EngineFleet::Start(FleetArguments(options_, speed_, *dialects));
  if (!fleet.ok()) return fleet.status();
  fleet_ = std::move(fleet).value();
  for (size_t i = 0; i < fleet_->engines().size(); ++i) {
    result_.engines.push_back(
        {.name = fleet_->engines()[i].name, .dialect = (*dialects)[i % dialects->size()]});
  }
  auto router = DemoRouter::Create(options_, fleet_->engines(), *dialects, result_.policy, audit_);
  if (!router.ok()) return router.status();
  router_ = std::move(router).value();

  if (const Status started = StartService(cache_); !started.ok()) return started;
  Progress progress(RoutingPolicyTitle(result_.policy), static_cast<int64_t>(trace_.size()));
  Status status = RouteAll(progress);
  if (status.ok()) status = AwaitAll(progress);
  if (status.ok()) status = AwaitAudit();
  progress.Finish();
  if (status.ok() && service_) status = ServeUntilStopped();
  if (!status.ok()) return status;
  TakeResults();
  fleet_->Stop(kStopDeadlineSeconds, [this](const ControlMessage& message) { OnMessage(message); });
  return result_;
}

void RoutedRun::TakeResults() {
  result_.seconds = now();
  result_.first_token_s =
      first_token_sum_s_ / static_cast<double>(std::max<int64_t>(first_tokens_, 1));
  result_.audit = audit_.totals();
  for (size_t i = 0; i < result_.engines.size(); ++i) {
    result_.engines[i].audit = audit_.totals(i);
  }
  result_.lost_batches = router_->lost_batches();
  result_.schemes = router_->schemes();
}

Status RoutedRun::RouteAll(Progress& progress) {
  const double first = now();
  for (size_t i = 0; i < trace_.size(); ++i) {
    const double due = first + trace_[i].arrival_s / speed_;
    do {
      if (const Status status = Listen(std::max(due - now(), 0.0)); !status.ok()) return status;
    } while (now() < due);
    RouteOne(i);
    progress.Update(done_);
  }
  return {};
}

Status RoutedRun::AwaitAll(Progress& progress) {
  while (done_ < static_cast<int64_t>(trace_.size())) {
    if (const Status status = Listen(0.1); !status.ok()) return status;
    progress.Update(done_);
    if (now() - last_message_s_ > kStallSeconds) {
      return {StatusCode::kUnavailable, "no engine sent a message for " +
                                            std::to_string(static_cast<int>(kStallSeconds)) + " s"};
    }
  }
  return {};
}

// The last batches may still be under way when the last request is done.
Status RoutedRun::AwaitAudit() {
  double last_change = now();
  for (int64_t pending = audit_.pending(); pending > 0;) {
    if (const Status status = Listen(0.01); !status.ok()) return status;
    const int64_t left = audit_.pending();
    if (left != pending) last_change = now();
    pending = left;
    if (now() - last_change > kAuditStallSeconds) {
      return {StatusCode::kUnavailable,
              std::to_string(pending) + " admissions could not be checked: events are missing"};
    }
  }
  return {};
}

// Handles messages of the engines for up to `seconds`.
Status RoutedRun::Listen(double seconds) {
  if (StopSignal() != 0) return {StatusCode::kUnavailable, "interrupted"};
  if (const Status alive = fleet_->CheckAlive(); !alive.ok()) return alive;
  const double until = now() + seconds;
  auto message =
      fleet_->control().Receive(static_cast<int64_t>(std::ceil(std::min(seconds, 0.1) * 1000)));
  while (message) {
    OnMessage(*message);
    if (now() > until) return {};
    message = fleet_->control().Receive(0);
  }
  return {};
}

Status RoutedRun::StartService(const CacheConfig& cache) {
  if (options_.serve.empty()) return {};
  router::RouterOptions service;
  if (Status status = router::ParseHttpAddress(options_.serve, service.http); !status.ok()) {
    return status;
  }
  const CacheOptions& options = options_.cache;
  service.routing.weights.load_token =
      options.load_rate > 0 ? options.prefill_rate / options.load_rate : 0.0;
  for (size_t i = 0; i < fleet_->engines().size(); ++i) {
    const EngineEndpoints& engine = fleet_->engines()[i];
    router::RouterSource source;
    source.worker = MakeWorkerConfig(options, cache, engine.name);
    RegisterPeer(result_.engines[i].dialect, cache, source);
    source.endpoint = engine.endpoint;
    source.replay_endpoint = engine.replay_endpoint;
    source.model = options.model;
    service.sources.push_back(std::move(source));
  }
  auto started = router::RouterService::Start(service);
  if (!started.ok()) return started.status();
  service_ = std::move(started).value();
  std::fprintf(stderr, "kvcast demo: dashboard on http://%s:%d\n", service.http.address.c_str(),
               service_->http_port());
  return {};
}

Status RoutedRun::ServeUntilStopped() {
  std::fprintf(stderr, "kvcast demo: all requests are done; Ctrl-C ends the dashboard\n");
  Status status;
  while (status.ok()) status = Listen(0.1);
  return status;
}

// nullopt: there is no service, or the service refuses.
std::optional<size_t> RoutedRun::AskService(size_t number, const std::vector<TokenId>& prompt) {
  if (!service_) return std::nullopt;
  router::Query query;
  query.tokens = prompt;
  query.prompt_tokens = std::ssize(prompt);
  query.request_id = "request " + std::to_string(number);
  const auto decision = service_->Route(query);
  if (!decision.ok()) return std::nullopt;
  const size_t engine = EngineIndex(decision->candidates[decision->chosen].answer.name);
  return engine < result_.engines.size() ? std::optional(engine) : std::nullopt;
}

void RoutedRun::Tell(router::Feedback::Event event, int64_t number, int64_t reused) {
  if (!service_) return;
  // An error is ignored: the booking may have expired.
  (void)service_->TakeFeedback(
      {.event = event, .request_id = "request " + std::to_string(number), .reused_tokens = reused});
}

void RoutedRun::RouteOne(size_t number) {
  const std::vector<TokenId> prompt = PromptTokens(trace_[number], options_.cache.vocabulary);
  const auto decision = router_->Route(static_cast<int64_t>(number), prompt, now() * speed_,
                                       AskService(number, prompt));
  predicted_[number] = decision.predicted_tokens;
  routed_at_[number] = now();
  names_[number] = decision.names;
  const json header = {
      {"type", "request"}, {"number", number}, {"output", trace_[number].output_length}};
  // CheckAlive detects an engine that has exited.
  (void)fleet_->control().Send(fleet_->engines()[decision.engine].name, header.dump(),
                               PackTokens(prompt));
}

void RoutedRun::OnMessage(const ControlMessage& message) {
  const json report = json::parse(message.header, nullptr, false);
  const size_t engine = EngineIndex(message.peer);
  if (!report.is_object() || engine >= result_.engines.size()) return;
  last_message_s_ = now();
  const std::string type = report.value("type", "");
  if (type == "totals") return OnTotals(engine, report);
  const auto number = report.value("number", int64_t{-1});
  if (number < 0 || number >= static_cast<int64_t>(trace_.size())) return;
  if (type == "admitted") return OnAdmitted(engine, report);
  if (type == "first_token") {
    first_token_sum_s_ += (now() - routed_at_[static_cast<size_t>(number)]) * speed_;
    ++first_tokens_;
    Tell(router::Feedback::Event::kFirstToken, number);
    return router_->OnFirstToken(number);
  }
  if (type != "finished" && type != "refused") return;
  Tell(router::Feedback::Event::kFinished, number);
  router_->OnFinished(number);
  ++done_;
  if (type == "refused") ++result_.refused;
}

void RoutedRun::OnAdmitted(size_t engine, const json& report) {
  const auto number = report.value("number", int64_t{0});
  const auto hit = report.value("hit", int64_t{0});
  const auto loaded = report.value("loaded", int64_t{0});
  const auto prompt = report.value("prompt", int64_t{0});
  const auto sampled = report.value("sampled", int64_t{0});
  PromptNames names = names_[static_cast<size_t>(number)];
  if (report.value("first", true)) {
    Tell(router::Feedback::Event::kAdmitted, number, hit);
    ++result_.requests;
    result_.prompt_tokens += prompt;
    result_.reused_tokens += hit;
    result_.loaded_tokens += loaded;
    EngineResult& totals = result_.engines[engine];
    ++totals.requests;
    totals.prompt_tokens += prompt;
    totals.reused_tokens += hit;
    totals.loaded_tokens += loaded;
    const int64_t error = predicted_[static_cast<size_t>(number)] - hit;
    ++result_.live.compared;
    result_.live.equal += error == 0 ? 1 : 0;
    result_.live.over_tokens += std::max<int64_t>(error, 0);
    result_.live.under_tokens += std::max<int64_t>(-error, 0);
  } else {
    // The request was preempted, and its prompt includes the tokens sampled before.
    auto tokens = PromptTokens(trace_[static_cast<size_t>(number)], options_.cache.vocabulary);
    for (int64_t k = 0; k < sampled; ++k) {
      tokens.push_back(OutputToken(number, k, options_.cache.vocabulary));
    }
    names = router_->NamesOf(tokens);
  }
  const bool by_content = !result_.engines[engine].dialect.of_engine();
  audit_.OnAdmission(engine, {.request = number,
                              .hit_tokens = hit,
                              .loaded_tokens = loaded,
                              .total_tokens = prompt + sampled,
                              .published = report.value("published", uint64_t{0}),
                              .chain = names.chain,
                              .contents = by_content ? names.contents : nullptr});
}

void RoutedRun::OnTotals(size_t engine, const json& report) {
  result_.engines[engine].preempted = report.value("preempted", int64_t{0});
  result_.engines[engine].recomputed_after_preemption =
      report.value("recomputed_after_preemption", int64_t{0});
  result_.checked_blocks += report.value("checked_blocks", int64_t{0});
  result_.wrong_blocks += report.value("wrong_blocks", int64_t{0});
  result_.batches += report.value("batches", uint64_t{0});
  result_.event_bytes += report.value("bytes", uint64_t{0});
}

size_t RoutedRun::EngineIndex(const std::string& name) const {
  const auto& engines = fleet_->engines();
  const auto it = std::find_if(engines.begin(), engines.end(),
                               [&](const EngineEndpoints& engine) { return engine.name == name; });
  return static_cast<size_t>(it - engines.begin());
}

}  // namespace

const char* RoutingPolicyName(RoutingPolicy policy) {
  switch (policy) {
    case RoutingPolicy::kKvcast:
      return "kvcast";
    case RoutingPolicy::kFullOnly:
      return "full_only";
    case RoutingPolicy::kRoundRobin:
      return "round_robin";
  }
  return "unknown";
}

const char* RoutingPolicyTitle(RoutingPolicy policy) {
  switch (policy) {
    case RoutingPolicy::kKvcast:
      return "kvcast (all groups)";
    case RoutingPolicy::kFullOnly:
      return "full-attention blocks only";
    case RoutingPolicy::kRoundRobin:
      return "round robin";
  }
  return "unknown";
}

Result<RunResult> RunRouted(const DemoOptions& options, const std::vector<TraceRequest>& trace,
                            RoutingPolicy policy, double speed) {
  auto cache = MakeCacheConfig(options.cache);
  if (!cache.ok()) return cache.status();
  RoutedRun run(options, trace, policy, speed, *cache);
  return run.Run();
}

}  // namespace kvcast::tools
