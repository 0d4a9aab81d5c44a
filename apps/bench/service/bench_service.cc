// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/bench_service.h"

#include <charconv>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/bench/machine/speed_probe.h"
#include "apps/bench/service/health_prober.h"
#include "apps/bench/service/stalled_observers.h"
#include "apps/support/forked_process.h"
#include "apps/support/steady_now.h"
#include "router/service/router_service.h"

namespace kvcast::tools {
namespace {

using router::RouterOptions;
using router::RouterService;
using router::WorkerRegistration;

struct RouterAddress {
  int port = 0;
  std::array<char, 64> relay{};
};

// The router process: serves until the pipe is closed.
int Serve(const std::vector<LoadEndpoints>& endpoints, bool relay, const PipeEnd& in,
          const PipeEnd& out) {
  RouterOptions options;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    WorkerRegistration source;
    source.worker.name = "worker-" + std::to_string(i);
    source.model = "m";
    source.endpoint = endpoints[i].endpoint.data();
    source.replay_endpoint = endpoints[i].replay.data();
    options.sources.push_back(std::move(source));
  }
  if (relay) options.relay.endpoint = "tcp://127.0.0.1:0";
  auto service = RouterService::Start(options);
  if (!service.ok()) return 1;
  RouterAddress address{.port = (*service)->http_port()};
  (*service)->relay_endpoint().copy(address.relay.data(), address.relay.size() - 1);
  if (!out.Put(address)) return 1;
  char byte = 0;
  while (in.Get(byte, kPipeTimeoutMs * 60)) {
  }
  return 0;
}

// Returns the sum of a metric's samples over all labels.
double MetricSum(std::string_view page, const std::string& name) {
  double sum = 0;
  for (size_t at = 0; (at = page.find(name, at)) != std::string_view::npos; at += name.size()) {
    const char after = at + name.size() < page.size() ? page[at + name.size()] : ' ';
    const bool line = (at == 0 || page[at - 1] == '\n') && (after == ' ' || after == '{');
    if (!line) continue;
    const size_t end = std::min(page.find('\n', at), page.size());
    const size_t blank = page.rfind(' ', end);
    double value = 0;
    std::from_chars(page.data() + blank + 1, page.data() + end, value);
    sum += value;
  }
  return sum;
}

struct Snapshot {
  double time = 0;
  double cpu_seconds = 0;
  LoadCount published;
  double applied = 0;
  double residencies = 0;
  double lookups = 0, lookup_seconds = 0;
  double routes = 0, route_seconds = 0;
};

class ServiceBench {
 public:
  explicit ServiceBench(const ServiceBenchConfig& config)
      : config_(config), prompts_(MakeLoadPrompts(config.events)) {}

  Result<ServiceResult> Run() {
    if (Status status = StartProcesses(); !status.ok()) return status;
    MakeRequests();
    ServiceResult result;
    auto alone = RunPhase("alone");
    if (!alone.ok()) return alone.status();
    result.phases.push_back(std::move(alone).value());
    if (config_.observers > 0) {
      auto observed = RunObserved();
      if (!observed.ok()) return observed.status();
      result.phases.push_back(std::move(observed).value());
    }
    for (const HttpAttack* attack : config_.attacks) {
      auto attacked = RunAttacked(*attack);
      if (!attacked.ok()) return attacked.status();
      result.phases.push_back(std::move(attacked).value());
    }
    auto after = TakeSnapshot();
    if (!after.ok()) return after.status();
    result.residencies = static_cast<uint64_t>(after->residencies);
    return result;
  }

 private:
  // Starts the processes while this process has one thread.
  Status StartProcesses() {
    auto engines = ForkedProcess::Start([this](const PipeEnd& in, const PipeEnd& out) {
      return PublishLoad(config_.events, prompts_, in, out);
    });
    if (!engines.ok()) return engines.status();
    engines_ = std::move(engines).value();
    std::vector<LoadEndpoints> endpoints(static_cast<size_t>(config_.events.workers));
    for (LoadEndpoints& endpoint : endpoints) {
      if (!engines_->from().Get(endpoint, kPipeTimeoutMs))
        return Broken("the publishers did not start");
    }
    auto router = ForkedProcess::Start([this, &endpoints](const PipeEnd& in, const PipeEnd& out) {
      return Serve(endpoints, config_.observers > 0, in, out);
    });
    if (!router.ok()) return router.status();
    router_ = std::move(router).value();
    if (!config_.attacks.empty()) {
      auto attacker = ForkedProcess::Start(AttackOverHttp);
      if (!attacker.ok()) return attacker.status();
      attacker_ = std::move(attacker).value();
    }
    if (!router_->from().Get(address_, kPipeTimeoutMs)) return Broken("the router did not start");
    if (Status status = AwaitReady(); !status.ok()) return status;
    LoadCount filled;
    if (!engines_->to().Put('f') || !engines_->from().Get(filled, kPipeTimeoutMs)) {
      return Broken("the publishers did not fill the workers");
    }
    return AwaitApplied(filled.batches);
  }

  static Status Broken(const char* problem) { return {StatusCode::kUnavailable, problem}; }

  Status AwaitReady() const {
    const double deadline = SteadyNow() + kPipeTimeoutMs * 1e-3;
    while (!HttpGet(address_.port, "/readyz").ok()) {
      if (SteadyNow() > deadline) return Broken("some sources are not synced");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {};
  }

  Status AwaitApplied(uint64_t batches) const {
    const double deadline = SteadyNow() + kPipeTimeoutMs * 1e-3;
    while (SteadyNow() < deadline) {
      const auto page = HttpGet(address_.port, "/metrics");
      if (!page.ok()) return page.status();
      if (MetricSum(*page, "kvcast_source_batches_total") >= static_cast<double>(batches))
        return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return Broken("the router did not apply all batches");
  }

  void MakeRequests() {
    for (const LoadPrompt& prompt : prompts_) {
      std::string body = config_.by_tokens ? "{\"tokens\":[" : "{\"hashes\":[";
      const auto append = [&body](const auto& numbers) {
        for (const auto number : numbers) body += std::to_string(number) + ",";
        body.back() = ']';
      };
      config_.by_tokens ? append(prompt.tokens) : append(prompt.hashes);
      requests_.push_back(HttpPost("/v1/route", body + ",\"model\":\"m\"}"));
    }
  }

  Result<Snapshot> TakeSnapshot() const {
    Snapshot now;
    const auto page = HttpGet(address_.port, "/metrics");
    if (!page.ok()) return page.status();
    now.time = SteadyNow();
    now.cpu_seconds = router_->CpuSeconds();
    now.applied = MetricSum(*page, "kvcast_source_batches_total");
    now.residencies = MetricSum(*page, "kvcast_index_residencies");
    now.lookups = MetricSum(*page, "kvcast_query_duration_seconds_count");
    now.lookup_seconds = MetricSum(*page, "kvcast_query_duration_seconds_sum");
    now.routes = MetricSum(*page, "kvcast_decision_duration_seconds_count");
    now.route_seconds = MetricSum(*page, "kvcast_decision_duration_seconds_sum");
    if (!engines_->to().Put('?') || !engines_->from().Get(now.published, kPipeTimeoutMs)) {
      return Broken("the publisher process has ended");
    }
    return now;
  }

  Result<ServicePhase> RunObserved() {
    StalledObservers observers;
    Status status = observers.Start(config_.observers, address_.port, address_.relay.data());
    if (!status.ok()) return status;
    return RunPhase("observed");
  }

  Result<ServicePhase> RunAttacked(const HttpAttack& attack) {
    const HttpAttackOrder order{static_cast<uint32_t>(&attack - HttpAttacks().data()),
                                address_.port};
    if (!attacker_->to().Put(order)) return Broken("the attacker process has ended");
    auto phase = RunPhase(attack.name);
    if (!phase.ok()) return phase;
    phase->attacked = true;
    if (!attacker_->to().Put('s') || !attacker_->from().Get(phase->sent, kPipeTimeoutMs)) {
      return Broken("the attacker process has ended");
    }
    return phase;
  }

  Result<ServicePhase> RunPhase(std::string_view name) {
    const auto before = TakeSnapshot();
    if (!before.ok()) return before.status();
    HealthProber prober(address_.port, *router_);
    bench::SpeedProbe speed;
    auto http = RunHttpLoad({.port = address_.port,
                             .connections = config_.connections,
                             .rate = config_.rate,
                             .seconds = config_.seconds},
                            requests_);
    prober.Stop();
    const bench::SlowTimes slow(speed.Stop());
    if (!http.ok()) return http.status();
    const auto after = TakeSnapshot();
    if (!after.ok()) return after.status();
    ServicePhase phase = Describe(*before, *after);
    phase.name = name;
    phase.health = prober.Result(slow);
    phase.router_mib = prober.max_mib();
    phase.http = std::move(http).value();
    Summarise(phase, slow);
    return phase;
  }

  ServicePhase Describe(const Snapshot& before, const Snapshot& after) const {
    const auto per = [](double sum, double count) { return count > 0 ? sum / count : 0; };
    const double seconds = after.time - before.time;
    const auto batches = static_cast<double>(after.published.batches - before.published.batches);
    const auto ops = static_cast<double>(after.published.block_ops - before.published.block_ops);
    ServicePhase phase;
    phase.lookup_mean =
        per(after.lookup_seconds - before.lookup_seconds, after.lookups - before.lookups);
    phase.route_mean =
        per(after.route_seconds - before.route_seconds, after.routes - before.routes);
    phase.block_ops_per_s = per(ops, seconds);
    phase.applied_batches_per_published = per(after.applied - before.applied, batches);
    phase.router_cores = per(after.cpu_seconds - before.cpu_seconds, seconds);
    return phase;
  }

  static void Summarise(ServicePhase& phase, const bench::SlowTimes& slow) {
    const std::vector<bench::TimedDelay>& delays = phase.http.latencies;
    const bench::Samples all = bench::SlowTimes().AtFullSpeed(delays);
    phase.latency = QuantilesOf(all);
    phase.latency_full_speed = QuantilesOf(slow.AtFullSpeed(delays));
    phase.slow_share = slow.share();
    if (all.size() > 0) phase.latency_mean = all.sum() / static_cast<double>(all.size());
  }

  const ServiceBenchConfig& config_;
  const std::vector<LoadPrompt> prompts_;
  std::vector<std::string> requests_;
  RouterAddress address_;
  std::unique_ptr<ForkedProcess> engines_;
  std::unique_ptr<ForkedProcess> router_;
  std::unique_ptr<ForkedProcess> attacker_;  // nullptr: no attacks
};

}  // namespace

Result<ServiceResult> RunServiceBench(const ServiceBenchConfig& config) {
  return ServiceBench(config).Run();
}

}  // namespace kvcast::tools
