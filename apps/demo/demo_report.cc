// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_report.h"

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

struct SchemeTotals {
  int64_t engines = 0;  // engines whose hashes can be computed
  int64_t matched = 0;
};
SchemeTotals SchemesOf(const RunResult& run) {
  SchemeTotals totals;
  for (size_t i = 0; i < run.schemes.size(); ++i) {
    if (!run.engines[i].dialect.of_engine()) continue;
    ++totals.engines;
    totals.matched += run.schemes[i].state == SchemeState::kMatched ? 1 : 0;
  }
  return totals;
}

void PrintDialects(FILE* out, const std::vector<RunResult>& runs) {
  const auto dialects = ResultsByDialect(runs);
  if (dialects.size() == 1) return;
  std::fprintf(out, "\n%-23s %9s %15s %28s\n", "dialect, all three runs", "requests",
               "reused tokens", "index = engine's own lookup");
  for (const EngineResult& dialect : dialects) {
    std::fprintf(out, "%-23s %9lld %15lld %17lld of %7lld\n", dialect.name.c_str(),
                 Print(dialect.requests), Print(dialect.reused_tokens), Print(dialect.audit.equal),
                 Print(dialect.audit.compared));
    if (dialect.audit.first_difference.empty()) continue;
    std::fprintf(out, "           first difference: %s\n", dialect.audit.first_difference.c_str());
  }
}

json DialectsJson(const std::vector<RunResult>& runs) {
  json dialects = json::object();
  for (const EngineResult& dialect : ResultsByDialect(runs)) {
    dialects[dialect.name] = {{"requests", dialect.requests},
                              {"reused_tokens", dialect.reused_tokens},
                              {"compared", dialect.audit.compared},
                              {"equal", dialect.audit.equal}};
  }
  return dialects;
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
  std::fprintf(out,
               "live       prediction when routed = hit when admitted: %lld of %lld; late events: "
               "%lld tokens over-predicted, %lld under-predicted\n",
               Print(run.live.equal), Print(run.live.compared), Print(run.live.over_tokens),
               Print(run.live.under_tokens));
  std::fprintf(out,
               "answers    prediction with \"exact\": true = hit when admitted, if no batch came "
               "in between: %lld of %lld\n",
               Print(run.answers.equal), Print(run.answers.compared));
  std::fprintf(out, "stream     %llu batches, %.1f MB, %llu lost\n",
               static_cast<unsigned long long>(run.batches),
               static_cast<double>(run.event_bytes) / 1e6,
               static_cast<unsigned long long>(run.lost_batches));
  for (size_t i = 0; i < run.schemes.size(); ++i) {
    if (run.schemes[i].state == SchemeState::kMatched) continue;
    if (!run.engines[i].dialect.of_engine()) continue;
    std::fprintf(out, "           %s: hash scheme %s: %s\n", run.engines[i].name.c_str(),
                 std::string(SchemeStateName(run.schemes[i].state)).c_str(),
                 run.schemes[i].reason.c_str());
  }
  const SchemeTotals schemes = SchemesOf(run);
  std::fprintf(out, "schemes    confirmed by the events themselves: %lld of %lld engines\n",
               Print(schemes.matched), Print(schemes.engines));
}

// Prints the reuse from the GPU and from host memory separately, by policy.
void PrintHostTier(FILE* out, const DemoOptions& options, const std::vector<RunResult>& runs) {
  std::fprintf(out, "\n%-28s %18s %20s %14s %12s\n", "host memory, routed by", "reused on the GPU",
               "loaded from the host", "blocks checked", "wrong blocks");
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

// Round robin makes no prediction.
std::string Mispredicted(const RunResult& run) {
  if (run.policy == RoutingPolicy::kRoundRobin) return "-";
  return std::to_string(run.live.over_tokens + run.live.under_tokens);
}

void PrintPolicies(FILE* out, const std::vector<RunResult>& runs) {
  std::fprintf(out, "\n%-28s %11s %18s %15s %12s %7s\n", "same trace, routed by", "computed",
               "reused", "mispredicted", "mean TTFT", "took");
  for (const RunResult& run : runs) {
    std::fprintf(out, "%-28s %11lld %10lld %6.1f%% %15s %10.2f s %5.1f s\n",
                 RoutingPolicyTitle(run.policy), Print(run.computed_tokens()),
                 Print(run.reused_tokens + run.loaded_tokens),
                 Percent(run.reused_tokens + run.loaded_tokens, run.prompt_tokens),
                 Mispredicted(run).c_str(), run.first_token_s, run.seconds);
  }
  std::fprintf(out,
               "(prompt tokens; computed: not reused; mispredicted: over-predicted or "
               "under-predicted; TTFT: time to first token, in trace seconds)\n\n");
}

json EnginesJson(const RunResult& run) {
  json engines = json::array();
  for (const EngineResult& engine : run.engines) {
    engines.push_back({{"name", engine.name},
                       {"dialect", engine.dialect.name()},
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
      {"schemes", {{"engines", SchemesOf(run).engines}, {"matched", SchemesOf(run).matched}}},
      {"dialects", DialectsJson(runs)},
      {"computed_tokens", json::object()},
      {"reused_tokens", json::object()},
      {"loaded_tokens", json::object()},
      {"load_tokens_per_s", options.cache.load_rate},
      {"host_blocks", {{"checked", json::object()}, {"wrong", json::object()}}},
      {"mispredicted", json::object()},
      {"first_token_s", json::object()},
      {"seconds", json::object()}};
  for (const RunResult& each : runs) {
    const char* name = RoutingPolicyName(each.policy);
    report["computed_tokens"][name] = each.computed_tokens();
    report["reused_tokens"][name] = each.reused_tokens;
    report["loaded_tokens"][name] = each.loaded_tokens;
    report["host_blocks"]["checked"][name] = each.checked_blocks;
    report["host_blocks"]["wrong"][name] = each.wrong_blocks;
    report["mispredicted"][name] = {{"over_tokens", each.live.over_tokens},
                                    {"under_tokens", each.live.under_tokens}};
    report["first_token_s"][name] = each.first_token_s;
    report["seconds"][name] = each.seconds;
  }
  return report;
}

}  // namespace

std::vector<EngineResult> ResultsByDialect(const std::vector<RunResult>& runs) {
  std::vector<EngineResult> dialects;
  for (const RunResult& run : runs) {
    for (const EngineResult& engine : run.engines) {
      auto it = std::ranges::find(dialects, engine.dialect, &EngineResult::dialect);
      if (it == dialects.end()) {
        dialects.push_back({.name = std::string(engine.dialect.name()), .dialect = engine.dialect});
        it = dialects.end() - 1;
      }
      it->requests += engine.requests;
      it->reused_tokens += engine.reused_tokens;
      it->audit.compared += engine.audit.compared;
      it->audit.equal += engine.audit.equal;
      if (it->audit.first_difference.empty()) {
        it->audit.first_difference = engine.audit.first_difference;
      }
    }
  }
  return dialects;
}

void PrintDemoReport(const DemoOptions& options, const std::vector<RunResult>& runs) {
  FILE* out = options.json ? stderr : stdout;
  PrintEngines(out, runs.front());
  PrintDialects(out, runs);
  PrintExactness(out, runs.front());
  if (options.cache.cpu_blocks > 0) PrintHostTier(out, options, runs);
  PrintPolicies(out, runs);
  if (options.json) std::printf("%s\n", ReportJson(options, runs).dump().c_str());
}

}  // namespace kvcast::tools
