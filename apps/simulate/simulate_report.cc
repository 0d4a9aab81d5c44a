// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/simulate_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/simulate/rule_table.h"

namespace kvcast::simulate {
namespace {

using nlohmann::ordered_json;

// The slices of one arm of one workload. The token counts, `checked` and `equal` are sums. The
// other figures are means.
struct ArmMeans {
  std::string workload;
  std::string arm;
  int64_t slices = 0;
  double mean_s = 0;
  double p99_s = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  int64_t loaded_tokens = 0;
  int64_t wrong_tokens = 0;
  double imbalance = 0;
  double error_p50 = 0;
  double error_p90 = 0;
  int64_t checked = 0;
  int64_t equal = 0;
};

// The largest number of requests of an engine, divided by the mean.
double Imbalance(const std::vector<int64_t>& by_engine) {
  int64_t most = 0;
  int64_t all = 0;
  for (const int64_t requests : by_engine) {
    most = std::max(most, requests);
    all += requests;
  }
  return all == 0 ? 1
                  : static_cast<double>(most) * static_cast<double>(by_engine.size()) /
                        static_cast<double>(all);
}

std::vector<ArmMeans> MeansOf(const Matrix& matrix) {
  std::vector<ArmMeans> means;
  for (const MatrixRun& run : matrix.runs) {
    auto it = std::ranges::find_if(means, [&](const ArmMeans& arm) {
      return arm.workload == run.workload && arm.arm == run.arm();
    });
    if (it == means.end()) {
      means.push_back({.workload = run.workload, .arm = run.arm()});
      it = means.end() - 1;
    }
    ++it->slices;
    it->mean_s += run.result.mean_first_token_s();
    it->p99_s += run.result.first_token_quantile_s(0.99);
    it->prompt_tokens += run.result.prompt_tokens;
    it->reused_tokens += run.result.reused_tokens;
    it->loaded_tokens += run.result.loaded_tokens;
    it->wrong_tokens += run.result.wrong_promise_tokens;
    it->error_p50 += run.result.prediction_error_quantile(0.5);
    it->error_p90 += run.result.prediction_error_quantile(0.9);
    it->imbalance += Imbalance(run.result.by_engine);
    it->checked += run.result.exact_checked;
    it->equal += run.result.exact_equal;
  }
  for (ArmMeans& arm : means) {
    arm.mean_s /= static_cast<double>(arm.slices);
    arm.p99_s /= static_cast<double>(arm.slices);
    arm.error_p50 /= static_cast<double>(arm.slices);
    arm.error_p90 /= static_cast<double>(arm.slices);
    arm.imbalance /= static_cast<double>(arm.slices);
  }
  return means;
}

const PairedRatio* FindPair(const Matrix& matrix, const std::string& workload, const std::string& a,
                            const std::string& b) {
  const auto it = std::ranges::find_if(matrix.pairs, [&](const PairedRatio& pair) {
    return pair.workload == workload && pair.a == a && pair.b == b;
  });
  return it == matrix.pairs.end() ? nullptr : &*it;
}

double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

template <typename... Values>
std::string Format(const char* format, Values... values) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, values...);
  return text;
}

// Milliseconds with three digits after the point, so that the JSON is short and equal everywhere.
double Rounded(double seconds) { return std::round(seconds * 1e6) / 1e3; }
double RoundedRatio(double ratio) { return std::round(ratio * 1e4) / 1e4; }

}  // namespace

std::string RenderTable(const Matrix& matrix) {
  std::string text;
  const std::vector<ArmMeans> means = MeansOf(matrix);
  std::string workload;
  std::string first;
  for (const ArmMeans& arm : means) {
    if (arm.workload != workload) {
      workload = arm.workload;
      first = arm.arm;
      text += Format("%s%s, slices: %lld\n%-32s %9s %9s %7s %7s %9s %9s %12s %22s\n",
                     text.empty() ? "" : "\n", workload.c_str(), static_cast<long long>(arm.slices),
                     "rule/index", "mean TTFT", "p99 TTFT", "reused", "loaded", "wrong",
                     "imbalance", "TTFT error", "mean TTFT, ratio");
    }
    std::string ratio = "1";
    if (const PairedRatio* pair = FindPair(matrix, workload, arm.arm, first)) {
      // One slice has no interval.
      ratio = arm.slices == 1 ? Format("%.3f", pair->ratio)
                              : Format("%.3f (%.3f .. %.3f)", pair->ratio, pair->low, pair->high);
    }
    text +=
        Format("%-32s %7.1f ms %6.0f ms %6.1f%% %6.1f%% %8.2f%% %9.2f %12s %22s\n", arm.arm.c_str(),
               arm.mean_s * 1e3, arm.p99_s * 1e3, 100 * Share(arm.reused_tokens, arm.prompt_tokens),
               100 * Share(arm.loaded_tokens, arm.prompt_tokens),
               100 * Share(arm.wrong_tokens, arm.prompt_tokens), arm.imbalance,
               arm.error_p90 == 0
                   ? "-"
                   : Format("%.0f/%.0f%%", 100 * arm.error_p50, 100 * arm.error_p90).c_str(),
               ratio.c_str());
  }
  int64_t checked = 0;
  int64_t equal = 0;
  for (const ArmMeans& arm : means) {
    checked += arm.checked;
    equal += arm.equal;
  }
  text += Format(
      "\nTTFT: time to the first token, in virtual time. reused, loaded, wrong: shares of the "
      "prompt "
      "tokens; wrong: tokens that the router predicted and the engine did not reuse. imbalance: "
      "requests of the busiest engine, divided by the mean. TTFT error: of the predicted time, "
      "median and "
      "90th percentile. ratio: to the first row of the "
      "workload, with its 95 %% interval over the slices.\n"
      "exactness: the index was equal to the engine's own lookup at %lld of %lld admissions.\n",
      static_cast<long long>(equal), static_cast<long long>(checked));
  return text;
}

std::string RenderJson(const Matrix& matrix) {
  ordered_json runs = ordered_json::array();
  for (const MatrixRun& run : matrix.runs) {
    const RunResult& result = run.result;
    runs.push_back({{"workload", run.workload},
                    {"slice", run.slice},
                    {"rule", run.rule},
                    {"index", run.index},
                    {"ttft_mean_ms", Rounded(result.mean_first_token_s())},
                    {"ttft_p99_ms", Rounded(result.first_token_quantile_s(0.99))},
                    {"prompt_tokens", result.prompt_tokens},
                    {"reused_tokens", result.reused_tokens},
                    {"wrong_promise_tokens", result.wrong_promise_tokens},
                    {"exact_checked", result.exact_checked},
                    {"exact_equal", result.exact_equal},
                    {"ttft_p50_ms", Rounded(result.first_token_quantile_s(0.5))},
                    {"ttft_error_p50", RoundedRatio(result.prediction_error_quantile(0.5))},
                    {"ttft_error_p90", RoundedRatio(result.prediction_error_quantile(0.9))},
                    {"loaded_tokens", result.loaded_tokens},
                    {"refused", result.refused},
                    {"preempted", result.preempted},
                    {"seconds", std::round(result.seconds * 1e3) / 1e3},
                    {"imbalance", RoundedRatio(Imbalance(result.by_engine))}});
  }
  ordered_json pairs = ordered_json::array();
  for (const PairedRatio& pair : matrix.pairs) {
    pairs.push_back({{"workload", pair.workload},
                     {"a", pair.a},
                     {"b", pair.b},
                     {"ratio", RoundedRatio(pair.ratio)},
                     {"low", RoundedRatio(pair.low)},
                     {"high", RoundedRatio(pair.high)}});
  }
  return ordered_json{{"runs", std::move(runs)}, {"pairs", std::move(pairs)}}.dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);  // a path can be invalid UTF-8
}

std::string RenderRules() {
  std::string text;
  for (const RuleInfo& rule : AllRules()) {
    text += rule.name + ": " + rule.description + "\n";
    for (const auto& [name, value] : rule.defaults) {
      text += Format("    %s=%g\n", name.c_str(), value);
    }
    text += "    source: " + rule.source + "\n";
  }
  return text;
}

}  // namespace kvcast::simulate
