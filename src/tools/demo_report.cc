// SPDX-License-Identifier: Apache-2.0
#include "src/tools/demo_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace kvcast::tools {
namespace {

using nlohmann::json;

double Percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

long long Print(int64_t value) { return static_cast<long long>(value); }

int64_t MatchedSchemes(const RunResult& run) {
  return std::ranges::count(run.schemes, SchemeState::kMatched, &SchemeVerdict::state);
}

void PrintEngines(FILE* out, const RunResult& run) {
  std::fprintf(out, "\n%-10s %9s %15s %15s %8s %10s\n", "engine", "requests", "prompt tokens",
               "reused tokens", "reused", "preempted");
  for (const EngineResult& engine : run.engines) {
    std::fprintf(out, "%-10s %9lld %15lld %15lld %7.1f%% %10lld\n", engine.name.c_str(),
                 Print(engine.requests), Print(engine.prompt_tokens), Print(engine.reused_tokens),
                 Percent(engine.reused_tokens, engine.prompt_tokens), Print(engine.preempted));
  }
}

void PrintExactness(FILE* out, const RunResult& run) {
  std::fprintf(out,
               "\nexactness  index = engine's own lookup, at the same sequence number: %lld of "
               "%lld (%.2f %%)\n",
               Print(run.audit.equal), Print(run.audit.compared),
               Percent(run.audit.equal, run.audit.compared));
  if (!run.audit.first_difference.empty()) {
    std::fprintf(out, "           first difference: %s\n", run.audit.first_difference.c_str());
  }
  std::fprintf(
      out,
      "live       prediction when routed = hit when admitted: %lld of %lld; lag cost %lld tokens "
      "over, %lld under\n",
      Print(run.live.equal), Print(run.live.compared), Print(run.live.over_tokens),
      Print(run.live.under_tokens));
  std::fprintf(out, "stream     %llu batches, %.1f MB, %llu lost\n",
               static_cast<unsigned long long>(run.batches),
               static_cast<double>(run.event_bytes) / 1e6,
               static_cast<unsigned long long>(run.lost_batches));
  for (size_t i = 0; i < run.schemes.size(); ++i) {
    if (run.schemes[i].state == SchemeState::kMatched) continue;
    std::fprintf(out, "           %s: hash scheme %s: %s\n", run.engines[i].name.c_str(),
                 std::string(SchemeStateName(run.schemes[i].state)).c_str(),
                 run.schemes[i].reason.c_str());
  }
  std::fprintf(out, "schemes    confirmed by the events themselves: %lld of %zu engines\n",
               Print(MatchedSchemes(run)), run.schemes.size());
}

// Reuse from the GPU and from host memory apart, by policy.
void PrintHostTier(FILE* out, const DemoOptions& options, const std::vector<RunResult>& runs) {
  std::fprintf(out, "\n%-28s %18s %20s %14s %12s\n", "host memory, routed by", "reused on the GPU",
               "loaded from the host", "blocks checked", "wrong bytes");
  for (const RunResult& run : runs) {
    std::fprintf(out, "%-28s %10lld %6.1f%% %12lld %6.1f%% %14lld %12lld\n",
                 RoutingPolicyTitle(run.policy), Print(run.reused_tokens),
                 Percent(run.reused_tokens, run.prompt_tokens), Print(run.loaded_tokens),
                 Percent(run.loaded_tokens, run.prompt_tokens), Print(run.checked_blocks),
                 Print(run.wrong_blocks));
  }
  std::fprintf(out, "(loads at %.0f tokens a second, prefill at %.0f)\n", options.cache.load_rate,
               options.cache.prefill_rate);
}

// Round robin promises nothing.
std::string WrongPromises(const RunResult& run) {
  if (run.policy == RoutingPolicy::kRoundRobin) return "-";
  return std::to_string(run.live.over_tokens + run.live.under_tokens);
}

void PrintPolicies(FILE* out, const std::vector<RunResult>& runs) {
  std::fprintf(out, "\n%-28s %11s %18s %15s %12s %7s\n", "same trace, routed by", "recomputed",
               "reused", "wrong promises", "first token", "took");
  for (const RunResult& run : runs) {
    std::fprintf(out, "%-28s %11lld %10lld %6.1f%% %15s %10.2f s %5.1f s\n",
                 RoutingPolicyTitle(run.policy), Print(run.recomputed_tokens()),
                 Print(run.reused_tokens + run.loaded_tokens),
                 Percent(run.reused_tokens + run.loaded_tokens, run.prompt_tokens),
                 WrongPromises(run).c_str(), run.first_token_s, run.seconds);
  }
  std::fprintf(
      out,
      "(tokens; wrong promises: promised and not there, or there and not promised; first token: "
      "mean, in trace seconds)\n\n");
}

json EnginesJson(const RunResult& run) {
  json engines = json::array();
  for (const EngineResult& engine : run.engines) {
    engines.push_back({{"name", engine.name},
                       {"requests", engine.requests},
                       {"prompt_tokens", engine.prompt_tokens},
                       {"reused_tokens", engine.reused_tokens},
                       {"loaded_tokens", engine.loaded_tokens},
                       {"preempted", engine.preempted},
                       {"recomputed_after_preemption", engine.recomputed_after_preemption}});
  }
  return engines;
}

json ReportJson(const DemoOptions& options, const std::vector<RunResult>& runs) {
  const RunResult& run = runs.front();
  json report = {
      {"model", options.cache.model},
      {"requests", run.requests},
      {"prompt_tokens", run.prompt_tokens},
      {"refused", run.refused},
      {"engines", EnginesJson(run)},
      {"exactness",
       {{"compared", run.audit.compared},
        {"equal", run.audit.equal},
        {"over_tokens", run.audit.over_tokens},
        {"under_tokens", run.audit.under_tokens},
        {"first_difference", run.audit.first_difference}}},
      {"live",
       {{"compared", run.live.compared},
        {"equal", run.live.equal},
        {"over_tokens", run.live.over_tokens},
        {"under_tokens", run.live.under_tokens}}},
      {"stream",
       {{"batches", run.batches}, {"bytes", run.event_bytes}, {"lost", run.lost_batches}}},
      {"schemes", {{"engines", run.schemes.size()}, {"matched", MatchedSchemes(run)}}},
      {"recomputed_tokens", json::object()},
      {"reused_tokens", json::object()},
      {"loaded_tokens", json::object()},
      {"load_tokens_per_s", options.cache.load_rate},
      {"host_blocks", {{"checked", json::object()}, {"wrong", json::object()}}},
      {"promised", json::object()},
      {"first_token_s", json::object()},
      {"seconds", json::object()}};
  for (const RunResult& each : runs) {
    const char* name = RoutingPolicyName(each.policy);
    report["recomputed_tokens"][name] = each.recomputed_tokens();
    report["reused_tokens"][name] = each.reused_tokens;
    report["loaded_tokens"][name] = each.loaded_tokens;
    report["host_blocks"]["checked"][name] = each.checked_blocks;
    report["host_blocks"]["wrong"][name] = each.wrong_blocks;
    report["promised"][name] = {{"over_tokens", each.live.over_tokens},
                                {"under_tokens", each.live.under_tokens}};
    report["first_token_s"][name] = each.first_token_s;
    report["seconds"][name] = each.seconds;
  }
  return report;
}

}  // namespace

void PrintDemoReport(const DemoOptions& options, const std::vector<RunResult>& runs) {
  FILE* out = options.json ? stderr : stdout;
  PrintEngines(out, runs.front());
  PrintExactness(out, runs.front());
  if (options.cache.cpu_blocks > 0) PrintHostTier(out, options, runs);
  PrintPolicies(out, runs);
  if (options.json) std::printf("%s\n", ReportJson(options, runs).dump().c_str());
}

}  // namespace kvcast::tools
