// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench/service/bench_service.h"
#include "apps/commands/commands.h"

namespace kvcast::tools {
namespace {

using nlohmann::json;

constexpr double kP99 = 5e-3;

const char* NameOf(const ServicePhase& phase) { return phase.observed ? "observed" : "alone"; }

void Print(const ServicePhase& phase) {
  std::printf("%-9s offered %.0f/s, answered %.0f/s, %llu of %llu, failed %llu\n", NameOf(phase),
              static_cast<double>(phase.http.offered) / phase.http.seconds,
              static_cast<double>(phase.http.answered) / phase.http.seconds,
              static_cast<unsigned long long>(phase.http.answered),
              static_cast<unsigned long long>(phase.http.offered),
              static_cast<unsigned long long>(phase.http.failed));
  std::printf("          p50 %.0f  p99 %.0f  p99.9 %.0f  max %.0f us\n", phase.p50 * 1e6,
              phase.p99 * 1e6, phase.p999 * 1e6, phase.max * 1e6);
  std::printf(
      "          means: latency %.0f us; call in the router %.0f us (%.0f %%); lookup %.0f us\n",
      phase.latency_mean * 1e6, phase.route_mean * 1e6, 100 * phase.route_mean / phase.latency_mean,
      phase.lookup_mean * 1e6);
  std::printf("          %.0f block ops/s published; batches applied per published batch: %.3f\n",
              phase.block_ops_per_s, phase.applied_batches_per_published);
  std::printf("          router: %.2f processors, %.0f MiB\n", phase.router_cores,
              phase.router_mib);
}

json JsonOf(const ServicePhase& phase) {
  return {{"observed", phase.observed},
          {"offered", phase.http.offered},
          {"answered", phase.http.answered},
          {"failed", phase.http.failed},
          {"latency_s",
           {{"p50", phase.p50},
            {"p99", phase.p99},
            {"p999", phase.p999},
            {"max", phase.max},
            {"mean", phase.latency_mean}}},
          {"call_mean_s", phase.route_mean},
          {"lookup_mean_s", phase.lookup_mean},
          {"block_ops_per_s", phase.block_ops_per_s},
          {"applied_share", phase.applied_batches_per_published},
          {"router_processors", phase.router_cores},
          {"router_mib", phase.router_mib}};
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
    const bool met = phase.p99 <= kP99;
    const std::string name = std::string("p99 ") + NameOf(phase);
    std::printf("%-14s %8.3g s   target %g  %s\n", name.c_str(), phase.p99, kP99,
                met ? "met" : "NOT MET");
    targets.push_back(
        {{"name", name}, {"figure", phase.p99}, {"target", kP99}, {"unit", "s"}, {"met", met}});
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
