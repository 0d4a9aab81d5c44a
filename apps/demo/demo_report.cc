// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace kvcast::tools {
namespace {

using nlohmann::json;

double Percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

long long Print(int64_t value) { return static_cast<long long>(value); }

// True: kvcast can compute the engine's hashes.
bool HasScheme(const RunResult& run, size_t engine) {
  return run.engines[engine].dialect.of_engine();
}

bool IsUnmatched(const RunResult& run, size_t engine) {
  return HasScheme(run, engine) && run.schemes[engine].state != SchemeState::kMatched;
}

struct SchemeTotals {
  int64_t engines = 0;  // engines whose hashes can be computed
  int64_t matched = 0;
};
SchemeTotals SchemesOf(const RunResult& run) {
  SchemeTotals totals;
  for (size_t i = 0; i < run.schemes.size(); ++i) {
    totals.engines += HasScheme(run, i) ? 1 : 0;
    totals.matched += HasScheme(run, i) && !IsUnmatched(run, i) ? 1 : 0;
  }
  return totals;
}

// The engines whose scheme was not confirmed, each with the state of the scheme and the reason.
json UnmatchedSchemes(const RunResult& run) {
  json unmatched = json::object();
  for (size_t i = 0; i < run.schemes.size(); ++i) {
    if (!IsUnmatched(run, i)) continue;
    const SchemeVerdict& scheme = run.schemes[i];
    unmatched[run.engines[i].name] = {{"state", SchemeStateName(scheme.state)},
                                      {"reason", scheme.reason}};
  }
  return unmatched;
}

json SchemesJson(const RunResult& run) {
  const SchemeTotals totals = SchemesOf(run);
  return {{"engines", totals.engines},
          {"matched", totals.matched},
          {"unmatched", UnmatchedSchemes(run)}};
}

void PrintDialects(FILE* out, const RunResult& run) {
  const auto dialects = ResultsByDialect(run);
  if (dialects.size() == 1) return;
  std::fprintf(out, "\n%-23s %9s %15s %28s\n", "dialect", "requests", "reused tokens",
               "index = engine's own lookup");
  for (const EngineResult& dialect : dialects) {
    std::fprintf(out, "%-23s %9lld %15lld %17lld of %7lld\n", dialect.name.c_str(),
                 Print(dialect.requests), Print(dialect.reused_tokens), Print(dialect.audit.equal),
                 Print(dialect.audit.compared));
    if (dialect.audit.first_difference.empty()) continue;
    std::fprintf(out, "           first difference: %s\n", dialect.audit.first_difference.c_str());
  }
}

json DialectsJson(const RunResult& run) {
  json dialects = json::object();
  for (const EngineResult& dialect : ResultsByDialect(run)) {
    dialects[dialect.name] = {{"requests", dialect.requests},
                              {"reused_tokens", dialect.reused_tokens},
                              {"compared", dialect.audit.compared},
                              {"equal", dialect.audit.equal}};
  }
  return dialects;
}

void PrintEngines(FILE* out, const RunResult& run) {
  std::fprintf(out, "\none run over real sockets, routed by kvcast: %lld requests in %.1f s\n",
               Print(run.requests), run.seconds);
  std::fprintf(out, "%-10s %9s %15s %15s %8s %10s\n", "engine", "requests", "prompt tokens",
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
    if (!IsUnmatched(run, i)) continue;
    std::fprintf(out, "           %s: hash scheme %s: %s\n", run.engines[i].name.c_str(),
                 std::string(SchemeStateName(run.schemes[i].state)).c_str(),
                 run.schemes[i].reason.c_str());
  }
  const SchemeTotals schemes = SchemesOf(run);
  std::fprintf(out, "schemes    confirmed by the events themselves: %lld of %lld engines\n",
               Print(schemes.matched), Print(schemes.engines));
}

void PrintHostTier(FILE* out, const DemoOptions& options, const RunResult& run) {
  std::fprintf(out,
               "host       %lld tokens reused on the GPU (%.1f%%), %lld loaded from host memory "
               "(%.1f%%); %lld reused blocks checked, %lld with wrong bytes\n"
               "           (loads at %.0f tokens a second, prefill at %.0f)\n",
               Print(run.reused_tokens), Percent(run.reused_tokens, run.prompt_tokens),
               Print(run.loaded_tokens), Percent(run.loaded_tokens, run.prompt_tokens),
               Print(run.checked_blocks), Print(run.wrong_blocks), options.cache.load_rate,
               options.cache.prefill_rate);
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

double Milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

json PoliciesJson(const PolicyComparison& comparison) {
  json policies = json::array();
  for (const PolicyResult& policy : comparison.policies) {
    policies.push_back({{"rule", policy.rule},
                        {"index", policy.index},
                        {"ttft_mean_ms", Milliseconds(policy.run.mean_first_token_s())},
                        {"ttft_p99_ms", Milliseconds(policy.run.first_token_quantile_s(0.99))},
                        {"computed_tokens", policy.computed_tokens()},
                        {"reused_tokens", policy.run.reused_tokens},
                        {"loaded_tokens", policy.run.loaded_tokens},
                        {"wrong_promise_tokens", policy.run.wrong_promise_tokens},
                        {"exact_checked", policy.run.exact_checked},
                        {"exact_equal", policy.run.exact_equal}});
  }
  return policies;
}

// Adds the figures of three policies under the names kvcast, full_only and round_robin.
void AddPoliciesByName(const PolicyComparison& comparison, json& report) {
  for (const char* key :
       {"computed_tokens", "reused_tokens", "loaded_tokens", "mispredicted", "first_token_s"}) {
    report[key] = json::object();
  }
  for (const PolicyResult& policy : comparison.policies) {
    const bool kvcast = policy.rule == "kvcast";
    if (!kvcast && policy.rule != "round_robin") continue;
    const std::string name = kvcast && policy.index != "exact" ? "full_only" : policy.rule;
    report["computed_tokens"][name] = policy.computed_tokens();
    report["reused_tokens"][name] = policy.run.reused_tokens;
    report["loaded_tokens"][name] = policy.run.loaded_tokens;
    report["mispredicted"][name] = {{"over_tokens", policy.run.wrong_promise_tokens},
                                    {"under_tokens", policy.run.missed_tokens}};
    report["first_token_s"][name] = policy.run.mean_first_token_s();
  }
}

json ReportJson(const DemoOptions& options, const PolicyComparison& comparison,
                const RunResult& run) {
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
       {{"batches", run.batches},
        {"bytes", run.event_bytes},
        {"lost", run.lost_batches},
        {"resets", run.resets},
        {"reconnects", run.reconnects}}},
      {"schemes", SchemesJson(run)},
      {"dialects", DialectsJson(run)},
      {"policies", PoliciesJson(comparison)},
      {"load_tokens_per_s", options.cache.load_rate},
      {"host_blocks",
       {{"checked", {{"kvcast", run.checked_blocks}}}, {"wrong", {{"kvcast", run.wrong_blocks}}}}},
      {"seconds", {{"kvcast", run.seconds}}}};
  AddPoliciesByName(comparison, report);
  return report;
}

}  // namespace

std::vector<EngineResult> ResultsByDialect(const RunResult& run) {
  std::vector<EngineResult> dialects;
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
  return dialects;
}

void PrintPolicies(const DemoOptions& options, const PolicyComparison& comparison) {
  FILE* out = options.json ? stderr : stdout;
  if (comparison.policies.empty()) {
    std::fprintf(out, "\nno comparison of policies: %s\n", comparison.left_out.c_str());
    return;
  }
  std::fprintf(out, "\n%-32s %-15s %10s %10s %10s %7s %14s\n", "same trace, virtual time", "index",
               "mean TTFT", "p99 TTFT", "computed", "reused", "wrong promises");
  int64_t checked = 0;
  int64_t equal = 0;
  const auto index_of = [](const PolicyResult& policy) {
    if (!policy.reads_index) return "none";
    return policy.index == "full" ? "full attention" : "exact";
  };
  for (const PolicyResult& policy : comparison.policies) {
    const simulate::RunResult& run = policy.run;
    const std::string promises =
        policy.reads_index ? std::to_string(run.wrong_promise_tokens) : "-";
    std::fprintf(out, "%-32s %-15s %7.0f ms %7.0f ms %10lld %6.1f%% %14s\n", policy.title.c_str(),
                 index_of(policy), 1e3 * run.mean_first_token_s(),
                 1e3 * run.first_token_quantile_s(0.99), Print(policy.computed_tokens()),
                 Percent(run.reused_tokens + run.loaded_tokens, run.prompt_tokens),
                 promises.c_str());
    checked += run.exact_checked;
    equal += run.exact_equal;
  }
  std::fprintf(out,
               "(virtual time: the speed of this machine has no influence. The first 15 %% of the "
               "requests do not count.\n"
               "TTFT: time to first token. computed: prompt tokens that were not reused. wrong "
               "promises: tokens that the index predicted and the engine did not reuse.\n"
               "This is one slice of one trace. `kvcast simulate` compares the rules on many "
               "slices, with intervals.)\n"
               "index = engine's own lookup, if the index had all batches of the engine: %lld of "
               "%lld\n",
               Print(equal), Print(checked));
}

void PrintDemoReport(const DemoOptions& options, const PolicyComparison& comparison,
                     const RunResult& run) {
  FILE* out = options.json ? stderr : stdout;
  PrintEngines(out, run);
  PrintDialects(out, run);
  PrintExactness(out, run);
  if (options.cache.cpu_blocks > 0) PrintHostTier(out, options, run);
  if (options.json) std::printf("%s\n", ReportJson(options, comparison, run).dump().c_str());
}

}  // namespace kvcast::tools
