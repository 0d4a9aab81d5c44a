// The rules of llm-d, AIBrix and Preble. Each rule uses several signals. This file was written from
// the documents of these projects, without their code.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <deque>

#include "apps/simulate/rule_table.h"

namespace kvcast::simulate {
namespace {

double Share(const RuleInput& input, const RuleEngine& engine) {
  return static_cast<double>(engine.hit_tokens) /
         static_cast<double>(std::max<int64_t>(input.prompt_tokens, 1));
}

// llm-d's weighted scorers: prefix, queue and cache usage. The highest sum wins.
class LlmdRule final : public Rule {
 public:
  explicit LlmdRule(const RuleParameters& p)
      : prefix_(p.at("prefix")), queue_(p.at("queue")), usage_(p.at("kv_usage")) {}

  size_t Choose(const RuleInput& input) override {
    int64_t low = input.engines[0].waiting;
    int64_t high = low;
    for (const RuleEngine& engine : input.engines) {
      low = std::min(low, engine.waiting);
      high = std::max(high, engine.waiting);
    }
    std::vector<double> costs;
    for (const RuleEngine& engine : input.engines) {
      const double queue = high == low ? 1
                                       : static_cast<double>(high - engine.waiting) /
                                             static_cast<double>(high - low);
      costs.push_back(
          -(prefix_ * Share(input, engine) + queue_ * queue + usage_ * (1 - engine.cache_usage)));
    }
    return Cheapest(costs, input.draw);
  }

 private:
  const double prefix_;
  const double queue_;
  const double usage_;
};

// The rule of llm-d's guide since July 2026. It considers only the engines that hold most of the
// prompt, if there are such engines and their queues are not too long. Of the considered engines,
// it chooses the engine with the lowest token load.
class LlmdStickyRule final : public Rule {
 public:
  explicit LlmdStickyRule(const RuleParameters& p)
      : share_(p.at("share")), rate_(p.at("tokens_per_s")), patience_s_(p.at("patience_s")) {}

  size_t Choose(const RuleInput& input) override {
    constexpr double kNone = 1e300;
    double best_sticky = kNone;
    double best_other = kNone;
    for (const RuleEngine& engine : input.engines) {
      double& best = Share(input, engine) >= share_ ? best_sticky : best_other;
      best = std::min(best, static_cast<double>(engine.load.prefill_tokens) / rate_);
    }
    const bool sticky =
        best_sticky < kNone && (best_other == kNone || best_sticky - best_other <= patience_s_);
    std::vector<double> costs;
    for (const RuleEngine& engine : input.engines) {
      const bool allowed = !sticky || Share(input, engine) >= share_;
      costs.push_back(allowed ? static_cast<double>(engine.load.prefill_tokens) +
                                    Uncached(input, engine)
                              : kNone);
    }
    return Cheapest(costs, input.draw);
  }

 private:
  const double share_;
  const double rate_;
  const double patience_s_;
};

// AIBrix's prefix-cache policy.
class AibrixRule final : public Rule {
 public:
  explicit AibrixRule(const RuleParameters& p) : imbalance_(p.at("imbalance")) {}

  size_t Choose(const RuleInput& input) override {
    double sum = 0;
    double squares = 0;
    int64_t low = input.engines[0].load.requests;
    int64_t high = low;
    for (const RuleEngine& engine : input.engines) {
      const auto requests = static_cast<double>(engine.load.requests);
      sum += requests;
      squares += requests * requests;
      low = std::min(low, engine.load.requests);
      high = std::max(high, engine.load.requests);
    }
    const auto count = static_cast<double>(input.engines.size());
    const double mean = sum / count;
    const double deviation = std::sqrt(std::max(squares / count - mean * mean, 0.0));
    const bool unbalanced = static_cast<double>(high - low) > imbalance_;
    double best = 0;
    std::vector<double> costs;
    for (const RuleEngine& engine : input.engines) {
      const auto requests = static_cast<double>(engine.load.requests);
      const bool allowed = unbalanced ? engine.load.requests == low : requests <= mean + deviation;
      if (allowed) best = std::max(best, Share(input, engine));
    }
    for (const RuleEngine& engine : input.engines) {
      const auto requests = static_cast<double>(engine.load.requests);
      const bool allowed = unbalanced ? engine.load.requests == low : requests <= mean + deviation;
      const bool chosen = best == 0 || (allowed && Share(input, engine) == best);
      costs.push_back(chosen ? requests : 1e300);
    }
    return Cheapest(costs, input.draw);
  }

 private:
  const double imbalance_;
};

// Preble's E2 rule. If the longest cached prefix is more than `share` of the prompt, the rule
// considers the engines with this prefix, and chooses the engine with the fewest requests.
// Otherwise the rule chooses the engine with the least sum of three times: the prefill seconds of
// the last window_s, the prefill seconds of this prompt, and tpot_s for each request of the engine.
// Preble's term for evictions is left out.
class PrebleRule final : public Rule {
 public:
  PrebleRule(const RuleParameters& p, const RuleFleet& fleet)
      : share_(p.at("share")),
        window_s_(p.at("window_s")),
        token_s_(p.at("tpot_s")),
        rate_(fleet.prefill_tokens_per_s),
        recent_(fleet.engines) {}

  size_t Choose(const RuleInput& input) override {
    double best = 0;
    for (const RuleEngine& engine : input.engines) best = std::max(best, Share(input, engine));
    std::vector<double> costs;
    for (const RuleEngine& engine : input.engines) {
      if (best > share_) {
        const bool longest = Share(input, engine) == best;
        costs.push_back(longest ? static_cast<double>(engine.load.requests) : 1e300);
      } else {
        costs.push_back(Recent(engine.engine, input.now_s) + Uncached(input, engine) / rate_ +
                        static_cast<double>(engine.load.requests) * token_s_);
      }
    }
    const size_t chosen = Cheapest(costs, input.draw);
    recent_[input.engines[chosen].engine].emplace_back(
        input.now_s, Uncached(input, input.engines[chosen]) / rate_);
    return chosen;
  }

 private:
  // Seconds of prefill that the engine got in the window.
  double Recent(size_t engine, double now_s) {
    auto& recent = recent_[engine];
    while (!recent.empty() && recent.front().first < now_s - window_s_) recent.pop_front();
    double sum = 0;
    for (const auto& [time, seconds] : recent) sum += seconds;
    return sum;
  }

  const double share_;
  const double window_s_;
  const double token_s_;
  const double rate_;
  std::vector<std::deque<std::pair<double, double>>> recent_;
};

}  // namespace

std::vector<RuleInfo> ScoreRules() {
  return {
      {"llmd",
       "weighted sum of the scores of cached share, queue and cache usage",
       "llm-d router, weighted scorers",
       {{"prefix", 3}, {"queue", 2}, {"kv_usage", 2}},
       [](const RuleParameters& p, const RuleFleet&) -> std::unique_ptr<Rule> {
         return std::make_unique<LlmdRule>(p);
       }},
      {"llmd_sticky",
       "of the engines that hold at least `share` of the prompt, the engine with the fewest queued "
       "and uncached tokens; of all engines, if the shortest of these queues is more than "
       "`patience_s` longer than the shortest queue of the other engines",
       "llm-d router, prefix-cache-affinity filter with token load (July 2026)",
       {{"share", 0.8}, {"tokens_per_s", 15928}, {"patience_s", 18}},
       [](const RuleParameters& p, const RuleFleet&) -> std::unique_ptr<Rule> {
         return std::make_unique<LlmdStickyRule>(p);
       }},
      {"aibrix",
       "best cached share among engines up to the mean load plus one standard deviation; least "
       "loaded if the loads differ by more than `imbalance`",
       "AIBrix gateway, prefix-cache",
       {{"imbalance", 8}},
       [](const RuleParameters& p, const RuleFleet&) -> std::unique_ptr<Rule> {
         return std::make_unique<AibrixRule>(p);
       }},
      {"preble",
       "fewest requests among the engines with the longest prefix, if it is above `share` of the "
       "prompt; else the least sum of the prefill seconds of the last `window_s`, of this prefill, "
       "and of `tpot_s` per request of the engine",
       "Preble (arXiv 2407.00023), without its eviction term",
       {{"share", 0.5}, {"window_s", 180}, {"tpot_s", 0.15}},
       [](const RuleParameters& p, const RuleFleet& fleet) -> std::unique_ptr<Rule> {
         return std::make_unique<PrebleRule>(p, fleet);
       }},
  };
}

}  // namespace kvcast::simulate
