// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/demo/demo_fleet.h"
#include "apps/demo/demo_keys.h"
#include "apps/demo/demo_service.h"
#include "apps/demo/prompt_namer.h"
#include "apps/engine/engine_setup.h"
#include "apps/support/progress.h"
#include "apps/support/stop.h"
#include "router/service/route/request_router.h"
#include "router/service/router_service.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr double kStallSeconds = 30;  // the run fails if no engine sends a message for this time
constexpr double kStopDeadlineSeconds = 10;
constexpr double kAuditStallSeconds = 10;
// The run fails if the service is not synced with every engine after this time.
constexpr double kFollowSeconds = 20;

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
  // An engine with the format of TensorRT-LLM or Mooncake gets a seed that the router does not
  // have. The router then cannot compute the engine's hashes.
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
  if (cache.hashes_only) arguments.emplace_back("--hashes-only");
  const auto log = FlagsOf(options.log);
  arguments.insert(arguments.end(), log.begin(), log.end());
  return arguments;
}

// The engines take the dialects in turn.
std::vector<std::vector<std::string>> FleetArguments(const DemoOptions& options, double speed,
                                                     const std::vector<PeerDialect>& dialects,
                                                     const DemoKeys* keys) {
  std::vector<std::vector<std::string>> arguments;
  for (size_t i = 0; i < static_cast<size_t>(options.engines); ++i) {
    arguments.push_back(EngineArguments(options, speed, dialects[i % dialects.size()]));
    if (keys == nullptr) continue;
    const auto flags = keys->EngineFlags();
    arguments.back().insert(arguments.back().end(), flags.begin(), flags.end());
  }
  return arguments;
}

std::string RequestId(int64_t number) { return "request " + std::to_string(number); }

// The service's answer for a request.
struct Routed {
  int64_t predicted_tokens = 0;
  uint64_t next_seq = 0;
  bool exact = false;
};

class RoutedRun {
 public:
  RoutedRun(const DemoOptions& options, const std::vector<TraceRequest>& trace, double speed,
            const CacheConfig& cache, PromptNamer namer)
      : options_(options),
        trace_(trace),
        speed_(speed),
        cache_(cache),
        audit_(static_cast<size_t>(options.engines),
               MakeWorkerConfig(options.cache, cache, "audited"), cache.hash_block_size),
        namer_(std::move(namer)),
        routed_(trace.size()) {}

  Result<RunResult> Run();

 private:
  void TakeResults();
  Status RouteAll(Progress& progress);
  Status AwaitAll(Progress& progress);
  Status AwaitAudit();
  Status StartService(const std::vector<PeerDialect>& dialects);
  Status AwaitFollowed();
  Status ServeUntilStopped();
  void SendFeedback(router::Feedback feedback, int64_t number);
  Status Listen(double seconds);
  Status RouteOne(size_t number);
  void OnMessage(const ControlMessage& message);
  void OnAdmitted(size_t engine, const json& report);
  void OnFirstAdmission(size_t engine, const json& report);
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
  std::unique_ptr<Logger> log_;     // destroyed after service_
  std::unique_ptr<DemoKeys> keys_;  // nullptr: no CURVE
  std::unique_ptr<EngineFleet> fleet_;
  std::unique_ptr<router::RouterService>
      service_;  // destroyed before audit_: the service's threads call the audit
  PromptNamer namer_;
  std::vector<Routed> routed_;  // by request
  int64_t done_ = 0;
  RunResult result_;
};

Result<RunResult> RoutedRun::Run() {
  const auto dialects = DialectsOf(options_.cache, options_.dialects);
  if (!dialects.ok()) return dialects.status();
  if (options_.curve) {
    auto keys = DemoKeys::Create();
    if (!keys.ok()) return keys.status();
    keys_ = std::move(keys).value();
  }
  auto fleet = EngineFleet::Start(FleetArguments(options_, speed_, *dialects, keys_.get()));
  if (!fleet.ok()) return fleet.status();
  fleet_ = std::move(fleet).value();
  for (size_t i = 0; i < fleet_->engines().size(); ++i) {
    result_.engines.push_back(
        {.name = fleet_->engines()[i].name, .dialect = (*dialects)[i % dialects->size()]});
  }
  if (const Status started = StartService(*dialects); !started.ok()) return started;
  Progress progress("kvcast demo", static_cast<int64_t>(trace_.size()));
  Status status = AwaitFollowed();
  if (status.ok()) status = RouteAll(progress);
  if (status.ok()) status = AwaitAll(progress);
  if (status.ok()) status = AwaitAudit();
  if (status.ok()) status = AwaitFollowed();
  progress.Finish();
  if (status.ok() && !options_.serve.empty()) status = ServeUntilStopped();
  if (!status.ok()) return status;
  TakeResults();
  fleet_->Stop(kStopDeadlineSeconds, [this](const ControlMessage& message) { OnMessage(message); });
  return result_;
}

void RoutedRun::TakeResults() {
  result_.seconds = now();
  result_.audit = audit_.totals();
  for (size_t i = 0; i < result_.engines.size(); ++i) {
    result_.engines[i].audit = audit_.totals(i);
  }
  for (const router::WorkerReport& worker : service_->workers()) {
    result_.lost_batches += worker.stream.lost;
    result_.resets += worker.stream.resets;
    result_.reconnects += worker.stream.reconnects;
    result_.schemes.push_back(worker.scheme);
  }
}

Status RoutedRun::RouteAll(Progress& progress) {
  const double first = now();
  for (size_t i = 0; i < trace_.size(); ++i) {
    const double due = first + trace_[i].arrival_s / speed_;
    do {
      if (const Status status = Listen(std::max(due - now(), 0.0)); !status.ok()) return status;
    } while (now() < due);
    if (const Status status = RouteOne(i); !status.ok()) return status;
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

// Waits until all admissions are audited. The final batches may arrive after the end of the final
// request: a source that takes much time pauses between its batches.
Status RoutedRun::AwaitAudit() {
  double last_batch = now();
  uint64_t batches = audit_.batches();
  while (const int64_t waiting = audit_.CompareWaiting()) {
    if (const Status status = Listen(0.01); !status.ok()) return status;
    if (std::exchange(batches, audit_.batches()) != batches) last_batch = now();
    if (now() - last_batch > kAuditStallSeconds) {
      return {StatusCode::kUnavailable,
              std::to_string(waiting) +
                  " admissions could not be checked: batches are missing or repeated"};
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

Status RoutedRun::StartService(const std::vector<PeerDialect>& dialects) {
  auto service = MakeServiceOptions(options_, cache_, fleet_->engines(), dialects, speed_);
  if (!service.ok()) return service.status();
  if (keys_) {
    service->curve_key = keys_->router_key_file();
    for (auto& source : service->sources) source.server_key = keys_->engine_public_key();
  }
  service->on_applied = [this](const router::FleetWorker& worker,
                               const router::AppliedBatch& applied) {
    audit_.OnBatch(EngineIndex(worker.config.worker.name), applied.seq.value,
                   std::make_shared<const EventBatch>(applied.batch));
  };
  log_ = MakeStderrLog(options_.log);
  service->log = log_.get();
  auto started = router::RouterService::Start(*service);
  if (!started.ok()) return started.status();
  service_ = std::move(started).value();
  if (options_.serve.empty()) return {};
  std::fprintf(stderr, "kvcast demo: dashboard on http://%s:%d\n", service->http.address.c_str(),
               service_->http_port());
  return {};
}

// Waits until the service is synced with every engine.
Status RoutedRun::AwaitFollowed() {
  const double deadline = now() + kFollowSeconds;
  while (true) {
    Status followed;
    for (const router::WorkerReport& worker : service_->workers()) {
      if (followed.ok()) followed = CheckFollowed(worker);
    }
    if (followed.ok() || now() > deadline) return followed;
    if (const Status status = Listen(0.01); !status.ok()) return status;
  }
}

Status RoutedRun::ServeUntilStopped() {
  std::fprintf(stderr, "kvcast demo: all requests are done; Ctrl-C ends the dashboard\n");
  Status status;
  while (status.ok()) status = Listen(0.1);
  return status;
}

void RoutedRun::SendFeedback(router::Feedback feedback, int64_t number) {
  feedback.request_id = RequestId(number);
  // An error is ignored: the booking may have expired.
  (void)service_->TakeFeedback(feedback);
}

Status RoutedRun::RouteOne(size_t number) {
  router::Query query;
  query.tokens = PromptTokens(trace_[number], options_.cache.vocabulary);
  query.prompt_tokens = std::ssize(query.tokens);
  query.request_id = RequestId(static_cast<int64_t>(number));
  const auto decision = service_->Route(query);
  if (!decision.ok()) return decision.status();
  const router::QueryAnswer& answer = decision->candidates[decision->chosen].answer;
  routed_[number] = {.predicted_tokens = answer.match.gpu_tokens,
                     .next_seq = answer.next_seq,
                     .exact = answer.exact};
  const json header = {
      {"type", "request"}, {"number", number}, {"output", trace_[number].output_length}};
  // An error is ignored: CheckAlive detects an engine that has exited.
  (void)fleet_->control().Send(answer.name, header.dump(), PackTokens(query.tokens));
  return {};
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
    return SendFeedback({.event = router::Feedback::Event::kFirstToken}, number);
  }
  if (type != "finished" && type != "refused") return;
  SendFeedback({.event = router::Feedback::Event::kFinished}, number);
  ++done_;
  if (type == "refused") ++result_.refused;
}

void RoutedRun::OnAdmitted(size_t engine, const json& report) {
  const auto number = report.value("number", int64_t{0});
  const auto sampled = report.value("sampled", int64_t{0});
  if (report.value("first", true)) OnFirstAdmission(engine, report);
  // A preempted request returns with the tokens that were sampled before the preemption.
  auto tokens = PromptTokens(trace_[static_cast<size_t>(number)], options_.cache.vocabulary);
  for (int64_t k = 0; k < sampled; ++k) {
    tokens.push_back(OutputToken(number, k, options_.cache.vocabulary));
  }
  const bool with_chain = result_.engines[engine].dialect.of_engine();
  audit_.OnAdmission(engine, {.request = number,
                              .hit_tokens = report.value("hit", int64_t{0}),
                              .loaded_tokens = report.value("loaded", int64_t{0}),
                              .total_tokens = report.value("prompt", int64_t{0}) + sampled,
                              .published = report.value("published", uint64_t{0}),
                              .names = namer_.Of(tokens, with_chain)});
}

void RoutedRun::OnFirstAdmission(size_t engine, const json& report) {
  const auto number = report.value("number", int64_t{0});
  const auto hit = report.value("hit", int64_t{0});
  const auto loaded = report.value("loaded", int64_t{0});
  const auto prompt = report.value("prompt", int64_t{0});
  const auto published = report.value("published", uint64_t{0});
  ++result_.requests;
  result_.prompt_tokens += prompt;
  result_.reused_tokens += hit;
  result_.loaded_tokens += loaded;
  EngineResult& totals = result_.engines[engine];
  ++totals.requests;
  totals.prompt_tokens += prompt;
  totals.reused_tokens += hit;
  totals.loaded_tokens += loaded;
  const Routed& routed = routed_[static_cast<size_t>(number)];
  const int64_t error = routed.predicted_tokens - hit;
  ++result_.live.compared;
  result_.live.equal += error == 0 ? 1 : 0;
  result_.live.over_tokens += std::max<int64_t>(error, 0);
  result_.live.under_tokens += std::max<int64_t>(-error, 0);
  // A difference proves that the answer was wrong only if the engine published no batch between the
  // answer and the admission. If the engine published a batch, the demo sends no kAdmitted
  // feedback: after a difference, the service could replace the state of the engine by a snapshot.
  // The audit would then miss batches.
  if (routed.next_seq != published) return;
  SendFeedback(
      {.event = router::Feedback::Event::kAdmitted, .reused_tokens = hit, .next_seq = published},
      number);
  if (!routed.exact) return;
  ++result_.answers.compared;
  result_.answers.equal += error == 0 ? 1 : 0;
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

Result<RunResult> RunRouted(const DemoOptions& options, const std::vector<TraceRequest>& trace,
                            double speed) {
  auto cache = MakeCacheConfig(options.cache);
  if (!cache.ok()) return cache.status();
  auto namer = PromptNamer::Create(options.cache, *cache);
  if (!namer.ok()) return namer.status();
  RoutedRun run(options, trace, speed, *cache, std::move(namer).value());
  return run.Run();
}

}  // namespace kvcast::tools
