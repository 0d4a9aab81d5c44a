// `kvcast engine`: one simulated engine. Its requests come from a trace, or from a demo over the
// control connection. Only the time of the model is simulated: the blocks, hits and events
// are those of a real cache manager.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/commands/commands.h"
#include "apps/engine/control_channel.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/load_rate.h"
#include "apps/engine/sim_engine.h"
#include "apps/support/file.h"
#include "apps/support/stop.h"
#include "apps/support/trace.h"
#include "kvcast/stream/publisher.h"
#include "src/stream/net/notice_log.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr double kMaxBacklogSeconds = 1.0;  // model time; Pacer skips a longer delay
constexpr double kIdleWaitSeconds = 0.05;

double WallClockSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Model time: real time since the start, multiplied by `speed`.
class ModelClock {
 public:
  explicit ModelClock(double speed) : speed_(speed), start_(Clock::now()) {}
  double now() const {
    return std::chrono::duration<double>(Clock::now() - start_).count() * speed_;
  }
  double RealSeconds(double model_seconds) const { return model_seconds / speed_; }

 private:
  const double speed_;
  const Clock::time_point start_;
};

json TotalsJson(const SimEngine& engine, const Publisher& publisher) {
  const SimTotals& totals = engine.totals();
  return {{"type", "totals"},
          {"admitted", totals.admitted},
          {"finished", totals.finished},
          {"refused", totals.refused},
          {"preempted", totals.preempted},
          {"prompt_tokens", totals.prompt_tokens},
          {"reused_tokens", totals.reused_tokens},
          {"loaded_tokens", totals.loaded_tokens},
          {"checked_blocks", engine.tier() == nullptr ? 0 : engine.tier()->checked_blocks()},
          {"wrong_blocks", engine.tier() == nullptr ? 0 : engine.tier()->wrong_blocks()},
          {"recomputed_after_preemption", totals.recomputed_again},
          {"steps", totals.steps},
          {"batches", publisher.counters().batches},
          {"bytes", publisher.counters().bytes}};
}

// Runs the engine's steps at their model time.
class Pacer {
 public:
  // `step_ended` is called when the model time of a step is over.
  Pacer(
      SimEngine& engine, const ModelClock& clock, std::function<void()> step_ended = [] {})
      : engine_(engine), clock_(clock), step_ended_(std::move(step_ended)) {}

  void RunDueSteps() {
    const double now = clock_.now();
    next_step_ = std::max(next_step_, was_idle_ ? now : now - kMaxBacklogSeconds);
    if (next_step_ > now) return;
    step_ended_();
    was_idle_ = engine_.idle();
    if (was_idle_) return engine_.PublishPending();
    const double seconds = engine_.Step();
    next_step_ += seconds > 0 ? seconds : kIdleWaitSeconds;
  }

  // Real seconds until the next step is due, at most kIdleWaitSeconds.
  double wait_seconds() const {
    if (was_idle_) return kIdleWaitSeconds;
    return std::clamp(clock_.RealSeconds(next_step_ - clock_.now()), 0.0, kIdleWaitSeconds);
  }

 private:
  SimEngine& engine_;
  const ModelClock& clock_;
  const std::function<void()> step_ended_;
  double next_step_ = 0;
  bool was_idle_ = true;
};

// Writes the number of new denied requests to the log, at most once per second.
class DeniedRequests {
 public:
  DeniedRequests(Logger& log, const Publisher& publisher) : log_(log), publisher_(publisher) {}
  void Note() {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::seconds(1);
    const uint64_t denied = publisher_.counters().replay_denied;
    if (denied == logged_) return;
    log_.Write(log_events::kStreamDenied, "",
               {{"stream", "engine"},
                {"requests", denied - std::exchange(logged_, denied)},
                {"reason", "the key of the client does not have the role for the request"}});
  }

 private:
  Logger& log_;
  const Publisher& publisher_;
  Clock::time_point next_{};
  uint64_t logged_ = 0;
};

// The publisher and the log of a run.
struct Outlet {
  Publisher& publisher;
  PeerWriter* writer;  // nullptr: the publisher encodes the batches
  Logger& log;
  bool encrypted = false;

  void LogListening() const {
    log.Write(log_events::kStreamListening, "",
              {{"stream", "engine"},
               {"address", publisher.endpoint()},
               {"replay", publisher.replay_endpoint()},
               {"encrypted", encrypted}});
  }
};

// If `writer` is nullptr, the publisher encodes the batch.
Result<Seq> PublishBatch(Publisher& publisher, PeerWriter* writer, EventBatch batch) {
  if (writer == nullptr) return publisher.Publish(std::move(batch));
  std::vector<uint8_t> payload;
  if (Status status = writer->Write(batch, payload); !status.ok()) return status;
  return publisher.PublishPayload(payload);
}

SimHooks PublishingHooks(const Outlet& outlet) {
  SimHooks hooks;
  hooks.publish = [outlet](std::vector<Event> events) {
    EventBatch batch;
    batch.ts = WallClockSeconds();
    batch.events = std::move(events);
    // Publishing fails only if the batch cannot be encoded. Events of this engine's pool can
    // always be encoded.
    const auto seq = PublishBatch(outlet.publisher, outlet.writer, std::move(batch));
    if (!seq.ok()) {
      outlet.log.Write(log_events::kPublishFailed, "", {{"reason", seq.status().message()}});
    }
    return outlet.publisher.next_seq();
  };
  hooks.admitted = [](const Admission&) {};
  hooks.first_token = [](int64_t) {};
  hooks.finished = [](int64_t) {};
  hooks.refused = [&log = outlet.log](int64_t number) {
    log.Write(log_events::kRequestRefused, "",
              {{"request", number}, {"reason", "the request needs more blocks than the pool has"}});
  };
  return hooks;
}

// The results of a step. A real engine has them when the step ends, but SimEngine computes them
// when the step begins.
class StepReports {
 public:
  explicit StepReports(ControlClient& control) : control_(control) {}
  void Add(const char* type, int64_t number) {
    reports_.push_back(json{{"type", type}, {"number", number}}.dump());
  }
  void SendAll() {
    for (const std::string& report : reports_) control_.Send(report);
    reports_.clear();
  }

 private:
  ControlClient& control_;
  std::vector<std::string> reports_;
};

SimHooks ReportingHooks(const Outlet& outlet, ControlClient& control, StepReports& step) {
  SimHooks hooks = PublishingHooks(outlet);
  hooks.admitted = [&control](const Admission& admission) {
    control.Send(json{{"type", "admitted"},
                      {"number", admission.number},
                      {"hit", admission.hit_tokens},
                      {"loaded", admission.loaded_tokens},
                      {"prompt", admission.prompt_tokens},
                      {"sampled", admission.sampled_tokens},
                      {"first", admission.first},
                      {"published", admission.published.value}}
                     .dump());
  };
  hooks.first_token = [&step](int64_t number) { step.Add("first_token", number); };
  hooks.finished = [&step](int64_t number) { step.Add("finished", number); };
  hooks.refused = [&control](int64_t number) {
    control.Send(json{{"type", "refused"}, {"number", number}}.dump());
  };
  return hooks;
}

// False: the message requests the stop of the engine.
bool HandleControl(const ControlMessage& message, SimEngine& engine) {
  const json header = json::parse(message.header, nullptr, false);
  const std::string type = header.is_object() ? header.value("type", "") : "";
  if (type == "stop") return false;
  if (type != "request") return true;
  auto tokens = UnpackTokens(message.body);
  if (!tokens || tokens->empty()) return true;
  engine.Add({.number = header.value("number", int64_t{0}),
              .prompt = *std::move(tokens),
              .output_tokens = header.value("output", int64_t{1})});
  return true;
}

int RunControlled(const EngineOptions& options, const Outlet& outlet,
                  std::unique_ptr<CacheManager> cache, std::unique_ptr<HostTier> tier) {
  const Publisher& publisher = outlet.publisher;
  auto control = ControlClient::Create(options.control, options.name);
  if (!control.ok()) return Fail(control.status());
  ControlClient& client = **control;
  StepReports step(client);
  outlet.LogListening();
  SimEngine engine(MakeSimConfig(options.cache), std::move(cache), options.cache.vocabulary,
                   ReportingHooks(outlet, client, step), std::move(tier));
  const ModelClock clock(options.speed);
  Pacer pacer(engine, clock, [&step] { step.SendAll(); });
  client.Send(json{{"type", "hello"},
                   {"endpoint", publisher.endpoint()},
                   {"replay_endpoint", publisher.replay_endpoint()}}
                  .dump());
  bool running = true;
  DeniedRequests denied(outlet.log, outlet.publisher);
  while (running && StopSignal() == 0) {
    const double wait = pacer.wait_seconds();
    auto message = client.Receive(static_cast<int64_t>(std::ceil(wait * 1000)));
    while (message && running) {
      running = HandleControl(*message, engine);
      message = client.Receive(0);
    }
    pacer.RunDueSteps();
    denied.Note();
  }
  client.Send(TotalsJson(engine, publisher).dump());
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

void PrintTotals(const EngineOptions& options, const SimEngine& engine,
                 const Publisher& publisher) {
  if (options.json) {
    std::printf("%s\n", TotalsJson(engine, publisher).dump().c_str());
    return;
  }
  const SimTotals& totals = engine.totals();
  std::printf(
      "%lld requests, %lld prompt tokens, %lld reused, %lld preemptions, %llu batches published\n",
      static_cast<long long>(totals.admitted), static_cast<long long>(totals.prompt_tokens),
      static_cast<long long>(totals.reused_tokens), static_cast<long long>(totals.preempted),
      static_cast<unsigned long long>(publisher.counters().batches));
  const HostTier* const tier = engine.tier();
  if (tier == nullptr) return;
  std::printf(
      "%lld tokens loaded from host memory; %lld blocks stored, %lld loaded; %lld of %lld reused "
      "blocks held wrong bytes\n",
      static_cast<long long>(totals.loaded_tokens), static_cast<long long>(tier->stored_blocks()),
      static_cast<long long>(tier->loaded_blocks()), static_cast<long long>(tier->wrong_blocks()),
      static_cast<long long>(tier->checked_blocks()));
}

int RunTrace(const EngineOptions& options, const Outlet& outlet,
             std::unique_ptr<CacheManager> cache, std::unique_ptr<HostTier> tier) {
  std::string path = options.trace;
  if (path.empty()) {
    auto bundled = FindDataFile(kBundledTrace);
    if (!bundled.ok()) return Fail(bundled.status());
    path = *bundled;
  }
  auto trace = LoadTrace(path, options.requests);
  if (!trace.ok()) return Fail(trace.status());
  outlet.LogListening();
  SimEngine engine(MakeSimConfig(options.cache), std::move(cache), options.cache.vocabulary,
                   PublishingHooks(outlet), std::move(tier));
  const ModelClock clock(options.speed);
  Pacer pacer(engine, clock);
  size_t next = 0;
  DeniedRequests denied(outlet.log, outlet.publisher);
  while (StopSignal() == 0 && (next < trace->size() || !engine.idle())) {
    while (next < trace->size() && (*trace)[next].arrival_s <= clock.now()) {
      const TraceRequest& request = (*trace)[next];
      engine.Add({.number = static_cast<int64_t>(next),
                  .prompt = PromptTokens(request, options.cache.vocabulary),
                  .output_tokens = request.output_length});
      ++next;
    }
    pacer.RunDueSteps();
    denied.Note();
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::min(pacer.wait_seconds(), 0.005)));
  }
  PrintTotals(options, engine, outlet.publisher);
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

}  // namespace

int RunEngine(const EngineOptions& given) {
  EngineOptions options = given;
  if (!(options.speed > 0)) return Fail("--speed: must be above 0", 2);
  const auto rules = ParseEngineRules(options.cache.rules).value_or(EngineRules::kV033);
  const auto dialect = options.dialect.empty()
                           ? std::optional(PeerDialect{.dialect = DialectOf(rules)})
                           : ParsePeerDialect(options.dialect);
  if (!dialect) return Fail("--dialect: unknown dialect '" + options.dialect + "'", 2);
  // Engines with TensorRT-LLM's or Mooncake's format announce each block once.
  options.cache.announce_once |= !dialect->of_engine();
  options.cache.exact_spans |= !dialect->of_engine();
  auto cache = MakeCacheManager(options.cache);
  if (!cache.ok()) return Fail(cache.status());
  const Status representable =
      CheckRepresentable(*dialect, (*cache)->config(), options.cache.cpu_blocks > 0);
  if (!representable.ok()) return Fail("--dialect: " + representable.message(), 2);
  if (const Status rate = ResolveLoadRate(options.cache); !rate.ok()) return Fail(rate);
  auto tier = MakeHostTier(options.cache, **cache);
  if (!tier.ok()) return Fail(tier.status());
  PublisherConfig config;
  config.endpoint = options.endpoint;
  config.replay_endpoint = options.replay_endpoint;
  config.topic = options.topic;
  config.data_parallel_rank = options.rank;
  config.dialect = dialect->dialect;
  config.hashes_only = options.cache.hashes_only;
  auto prover = MakeChainProver(options.cache);
  if (!prover.ok()) return Fail(prover.status());
  config.answer_challenge = [&prover = **prover](uint64_t nonce) { return prover.Answer(nonce); };
  const auto writer = MakePeerWriter(*dialect, (*cache)->config());
  if (writer) {
    if (config.hashes_only) {
      return Fail("--hashes-only: requires a dialect of the engine format", 2);
    }
    // Heartbeats and snapshots exist only in the engine format.
    config.heartbeat_ms = 0;
    config.extension = false;
  }
  auto curve = LoadCurveServer({options.curve_key, options.curve_clients, options.insecure},
                               {options.endpoint, options.replay_endpoint});
  if (!curve.ok()) return Fail(curve.status());
  config.curve = std::move(curve).value();
  const auto log = MakeStderrLog(options.log);
  if (config.curve) config.curve->on_notice = stream::LogNotices(*log, "engine");
  auto publisher = Publisher::Create(config);
  if (!publisher.ok()) return Fail(publisher.status());
  InstallStopSignals();
  const Outlet outlet{**publisher, writer.get(), *log, config.curve.has_value()};
  if (!options.control.empty()) {
    return RunControlled(options, outlet, std::move(cache).value(), std::move(tier).value());
  }
  return RunTrace(options, outlet, std::move(cache).value(), std::move(tier).value());
}

}  // namespace kvcast::tools
