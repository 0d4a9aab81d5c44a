// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench/service/bench_service.h"
#include "apps/dev/dev_commands.h"
#include "apps/dev/quantiles_json.h"

namespace kvcast::tools {
namespace {

using nlohmann::json;

constexpr double kP99 = 5e-3;
constexpr double kAttackedP99 = 20e-3;
constexpr double kAttackedHealthMax = 50e-3;

void Print(const ServicePhase& phase) {
  std::printf("%-18s offered %.0f/s, answered %.0f/s, %llu of %llu, failed %llu\n",
              phase.name.c_str(), static_cast<double>(phase.http.offered) / phase.http.seconds,
              static_cast<double>(phase.http.answered) / phase.http.seconds,
              static_cast<unsigned long long>(phase.http.answered),
              static_cast<unsigned long long>(phase.http.offered),
              static_cast<unsigned long long>(phase.http.failed));
  const auto print = [](const char* name, const Quantiles& latency) {
    std::printf("          %s p50 %.0f  p99 %.0f  p99.9 %.0f  max %.0f us\n", name,
                latency.p50 * 1e6, latency.p99 * 1e6, latency.p999 * 1e6, latency.max * 1e6);
  };
  print("all:          ", phase.latency);
  print("at full speed:", phase.latency_full_speed);
  std::printf("          the machine was slow in %.1f %% of the time\n", phase.slow_share * 100);
  std::printf(
      "          means: latency %.0f us; call in the router %.0f us (%.0f %%); lookup %.0f us\n",
      phase.latency_mean * 1e6, phase.route_mean * 1e6, 100 * phase.route_mean / phase.latency_mean,
      phase.lookup_mean * 1e6);
  std::printf("          %.0f block ops/s published; batches applied per published batch: %.3f\n",
              phase.block_ops_per_s, phase.applied_batches_per_published);
  std::printf("          router: %.2f processors, at most %.0f MiB\n", phase.router_cores,
              phase.router_mib);
  std::printf("          healthz p99 %.1f  max %.1f ms, %llu answered, %llu failed\n",
              phase.health.p99 * 1e3, phase.health.max * 1e3,
              static_cast<unsigned long long>(phase.health.answered),
              static_cast<unsigned long long>(phase.health.failed));
  if (!phase.attacked) return;
  std::printf("          attackers: %.0f MiB sent, %.0f MiB answered, %llu connections\n",
              static_cast<double>(phase.sent.bytes) / (1 << 20),
              static_cast<double>(phase.sent.answered_bytes) / (1 << 20),
              static_cast<unsigned long long>(phase.sent.connections));
}

json JsonOf(const ServicePhase& phase) {
  return {{"phase", phase.name},
          {"offered", phase.http.offered},
          {"answered", phase.http.answered},
          {"failed", phase.http.failed},
          {"latency_s", JsonOf(phase.latency)},
          {"latency_mean_s", phase.latency_mean},
          {"latency_full_speed_s", JsonOf(phase.latency_full_speed)},
          {"slow_share", phase.slow_share},
          {"call_mean_s", phase.route_mean},
          {"lookup_mean_s", phase.lookup_mean},
          {"block_ops_per_s", phase.block_ops_per_s},
          {"applied_share", phase.applied_batches_per_published},
          {"router_processors", phase.router_cores},
          {"router_mib", phase.router_mib},
          {"healthz_s", {{"p99", phase.health.p99}, {"max", phase.health.max}}},
          {"healthz_failed", phase.health.failed},
          {"attack_bytes", phase.sent.bytes},
          {"attack_connections", phase.sent.connections}};
}

// Prints the target, and returns it.
json Judged(const std::string& name, double figure, double target) {
  const bool met = figure <= target;
  std::printf("%-20s %8.3g s   target %g  %s\n", name.c_str(), figure, target,
              met ? "met" : "NOT MET");
  return {{"name", name}, {"figure", figure}, {"target", target}, {"unit", "s"}, {"met", met}};
}

}  // namespace

int RunServiceBenchCommand(const ServiceBenchOptions& options) {
  ServiceBenchConfig config;
  config.events.workers = static_cast<int>(options.workers);
  config.events.block_ops_per_s = static_cast<double>(options.block_ops);
  config.events.blocks_per_prompt = static_cast<int>(options.blocks);
  config.rate = static_cast<double>(options.rate);
  config.connections = static_cast<int>(options.connections);
  config.seconds = static_cast<double>(options.seconds);
  config.by_tokens = options.tokens;
  config.observers = static_cast<int>(options.observers);
  for (const std::string& name : options.attacks) {
    const HttpAttack* attack = FindHttpAttack(name);
    if (attack == nullptr && name != "all") return Fail("no attack has the name " + name, 2);
    if (attack != nullptr) config.attacks.push_back(attack);
    for (const HttpAttack& each : HttpAttacks()) {
      if (attack == nullptr) config.attacks.push_back(&each);
    }
  }
  for (const HttpAttack* attack : config.attacks) {
    std::printf("# %-18s %s\n", std::string(attack->name).c_str(),
                std::string(attack->summary).c_str());
  }
  const auto result = RunServiceBench(config);
  if (!result.ok()) return Fail(result.status());
  std::printf(
      "# %d workers, %.0f block ops/s; %.0f POST /v1/route per second, each with %d blocks by %s\n",
      config.events.workers, config.events.block_ops_per_s, config.rate,
      config.events.blocks_per_prompt, config.by_tokens ? "tokens" : "hashes");
  std::printf("# open loop, %d connections, %.0f s per phase; %llu residencies\n",
              config.connections, config.seconds,
              static_cast<unsigned long long>(result->residencies));
  json phases = json::array();
  json targets = json::array();
  bool all_answered = true;
  for (const ServicePhase& phase : result->phases) {
    Print(phase);
    phases.push_back(JsonOf(phase));
    all_answered &= phase.http.answered == phase.http.offered;
    targets.push_back(Judged("p99 " + phase.name, phase.latency_full_speed.p99,
                             phase.attacked ? kAttackedP99 : kP99));
    if (!phase.attacked) continue;
    targets.push_back(Judged("healthz " + phase.name, phase.health.max, kAttackedHealthMax));
  }
  if (options.json) {
    const json report = {{"name", "service"},
                         {"workers", config.events.workers},
                         {"rate", config.rate},
                         {"by", config.by_tokens ? "tokens" : "hashes"},
                         {"blocks", config.events.blocks_per_prompt},
                         {"observers", config.observers},
                         {"residencies", result->residencies},
                         {"phases", phases},
                         {"targets", targets}};
    std::printf("%s\n", report.dump().c_str());
  }
  return all_answered ? 0 : 1;
}

}  // namespace kvcast::tools
