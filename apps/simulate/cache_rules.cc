// Rules of other routers that compare the cached prefix with the load: SGLang, SMG, Dynamo, LMetric
// and DualMap. This file was written from the documents of these projects, without their code.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <set>
#include <unordered_map>

#include "apps/simulate/random.h"
#include "apps/simulate/rule_table.h"

namespace kvcast::simulate {
namespace {

using Cost = std::function<double(const RuleEngine&)>;

size_t Lowest(const RuleInput& input, const Cost& cost) {
  std::vector<double> costs;
  for (const RuleEngine& engine : input.engines) costs.push_back(cost(engine));
  return Cheapest(costs, input.draw);
}

double Requests(const RuleEngine& engine) { return static_cast<double>(engine.load.requests); }
double Hit(const RuleEngine& engine) { return static_cast<double>(engine.hit_tokens); }

// Returns the engine with the most cached tokens. If several engines have equally many, returns the
// engine with the fewest requests.
size_t Warmest(const RuleInput& input) {
  return Lowest(input,
                [](const RuleEngine& engine) { return Requests(engine) - 1e6 * Hit(engine); });
}

struct Spread {
  double low = 0;
  double high = 0;
  double mean = 0;
};
Spread SpreadOf(const RuleInput& input, const Cost& value) {
  Spread spread{value(input.engines[0]), value(input.engines[0]), 0};
  for (const RuleEngine& engine : input.engines) {
    spread.low = std::min(spread.low, value(engine));
    spread.high = std::max(spread.high, value(engine));
    spread.mean += value(engine) / static_cast<double>(input.engines.size());
  }
  return spread;
}

// SGLang's policy cache_aware, and Dynamo's two-tier rule. If the loads differ much, the rule
// chooses the least loaded engine. Otherwise it chooses the engine with the longest cached prefix.
// If this prefix is too small a share of the prompt, it chooses the least loaded engine.
class ThresholdRule final : public Rule {
 public:
  explicit ThresholdRule(const RuleParameters& p)
      : threshold_(p.at("cache_threshold")),
        absolute_(p.at("balance_abs")),
        relative_(p.at("balance_rel")) {}

  size_t Choose(const RuleInput& input) override {
    const Spread loads = SpreadOf(input, Requests);
    if (loads.high - loads.low > absolute_ && loads.high > relative_ * loads.low) {
      return Lowest(input, Requests);
    }
    const size_t warmest = Warmest(input);
    const double share = Hit(input.engines[warmest]) /
                         static_cast<double>(std::max<int64_t>(input.prompt_tokens, 1));
    return share > threshold_ ? warmest : Lowest(input, Requests);
  }

 private:
  const double threshold_;
  const double absolute_;
  const double relative_;
};

// SMG with events: chooses the engine with the longest cached prefix. If no engine has a cached
// prefix, or if the load of this engine is far above the mean, chooses the least loaded engine.
class SmgRule final : public Rule {
 public:
  explicit SmgRule(const RuleParameters& p)
      : absolute_(p.at("balance_abs")), relative_(p.at("balance_rel")) {}

  size_t Choose(const RuleInput& input) override {
    const size_t warmest = Warmest(input);
    const RuleEngine& engine = input.engines[warmest];
    const Spread loads = SpreadOf(input, Requests);
    const bool overloaded =
        Requests(engine) > relative_ * loads.mean && Requests(engine) > loads.mean + absolute_;
    return engine.hit_tokens == 0 || overloaded ? Lowest(input, Requests) : warmest;
  }

 private:
  const double absolute_;
  const double relative_;
};

// Dynamo's default cost, in blocks.
class DynamoRule final : public Rule {
 public:
  explicit DynamoRule(const RuleParameters& p)
      : weight_(p.at("overlap_weight")), host_(p.at("host_weight")) {}

  size_t Choose(const RuleInput& input) override {
    const auto block = static_cast<double>(input.block_tokens);
    return Lowest(input, [&](const RuleEngine& engine) {
      const auto prefill =
          static_cast<double>(engine.load.prefill_tokens + input.prompt_tokens) / block;
      const double device = std::floor(Hit(engine) / block);
      const auto beyond =
          static_cast<double>(std::max<int64_t>(engine.hit_with_cpu_tokens - engine.hit_tokens, 0));
      const double host = std::floor(beyond / block);
      return weight_ * std::max(prefill - device - host_ * host, 0.0) +
             static_cast<double>(engine.blocks_with_request);
    });
  }

 private:
  const double weight_;
  const double host_;
};

// LMetric: the cost is the uncached tokens times the number of requests. A guard sends some
// requests of a very frequent prompt to other engines.
class LMetricRule final : public Rule {
 public:
  explicit LMetricRule(const RuleParameters& p)
      : queued_(p.at("queued_prefill") != 0), guard_(p.at("guard") != 0) {}

  size_t Choose(const RuleInput& input) override {
    const auto cost = [&](const RuleEngine& engine) {
      const double queued = queued_ ? static_cast<double>(engine.load.prefill_tokens) : 0.0;
      return std::max(Uncached(input, engine) + queued, 1.0) * (Requests(engine) + 1);
    };
    const size_t chosen = Lowest(input, cost);
    return guard_ ? Guarded(input, cost, chosen) : chosen;
  }

 private:
  static constexpr size_t kClassBlocks = 4;
  static constexpr size_t kWindow = 1000;  // requests

  // A class is the set of requests with the same first blocks. If the share of a class is larger
  // than the share of the engines that hold its prefix, the class gets an alarm. After many alarms
  // in a row, the rule chooses an engine that does not hold the prefix.
  size_t Guarded(const RuleInput& input, const Cost& cost, size_t chosen) {
    if (input.prefixes.size() < kClassBlocks) return chosen;
    const PrefixNumber name = input.prefixes[kClassBlocks - 1];
    recent_.push_back(name);
    ++count_[name];
    if (recent_.size() > kWindow) {
      --count_[recent_.front()];
      recent_.pop_front();
    }
    const double share = static_cast<double>(count_[name]) / static_cast<double>(recent_.size());
    const auto holds = [&](const RuleEngine& engine) {
      return engine.hit_tokens >= static_cast<int64_t>(kClassBlocks) * input.block_tokens;
    };
    const auto holders = static_cast<double>(std::ranges::count_if(input.engines, holds));
    const double others = static_cast<double>(input.engines.size()) - holders;
    int& alarms = alarms_[name];
    const bool alarm = holders > 0 && others > 0 && share < 1 &&
                       share / (1 - share) > holders / others && holds(input.engines[chosen]);
    alarms = alarm ? alarms + 1 : 0;
    if (alarms <= 2 * holders) return chosen;
    alarms = 0;
    return Lowest(input, [&](const RuleEngine& engine) {
      return holds(engine) ? std::numeric_limits<double>::max() : cost(engine);
    });
  }

  const bool queued_;
  const bool guard_;
  std::deque<PrefixNumber> recent_;
  std::unordered_map<PrefixNumber, int64_t> count_;
  std::unordered_map<PrefixNumber, int> alarms_;
};

// DualMap: a hash assigns two engines to each prefix. The rule chooses the engine of the two with
// more cached tokens. If this engine has too much work, the rule chooses the engine with less
// work.
class DualMapRule final : public Rule {
 public:
  explicit DualMapRule(const RuleParameters& p) : limit_(p.at("limit_tokens")) {}

  size_t Choose(const RuleInput& input) override {
    const auto [first, second] = Homes(input);
    const auto work = [&](size_t position) {
      return static_cast<double>(input.engines[position].load.prefill_tokens) +
             Uncached(input, input.engines[position]);
    };
    const bool first_warmer = Hit(input.engines[first]) >= Hit(input.engines[second]);
    const size_t warmer = first_warmer ? first : second;
    if (work(warmer) <= limit_) return warmer;
    return work(first) <= work(second) ? first : second;
  }

 private:
  static constexpr size_t kBlocks = 4;
  static constexpr int kLevels = 8;

  // Returns the two engines. If too many requests share the prefix, the hash covers a longer
  // prefix.
  std::pair<size_t, size_t> Homes(const RuleInput& input) {
    ++requests_;
    const double most = 2 / static_cast<double>(input.engines.size());
    uint64_t name = Mix(static_cast<uint64_t>(input.request));
    size_t blocks = kBlocks;
    for (int level = 0; level < kLevels && !input.prefixes.empty(); ++level, blocks *= 2) {
      const size_t last = std::min(blocks, input.prefixes.size()) - 1;
      name = input.prefixes[last];
      const int64_t seen = ++count_[input.prefixes[last]];
      const double share = static_cast<double>(seen) / static_cast<double>(requests_);
      if (share <= most || blocks >= input.prefixes.size()) break;
    }
    std::vector<std::pair<uint64_t, size_t>> ranked;
    for (size_t i = 0; i < input.engines.size(); ++i) {
      ranked.emplace_back(Mix(name, input.engines[i].engine), i);
    }
    std::ranges::sort(ranked, std::greater<>());
    return {ranked[0].second, ranked[ranked.size() > 1 ? 1 : 0].second};
  }

  const double limit_;
  int64_t requests_ = 0;
  std::unordered_map<PrefixNumber, int64_t> count_;
};

template <typename T>
std::unique_ptr<Rule> Make(const RuleParameters& parameters, const RuleFleet&) {
  return std::make_unique<T>(parameters);
}

}  // namespace

std::vector<RuleInfo> CacheRules() {
  return {
      {"sglang",
       "longest cached prefix if its share of the prompt is above cache_threshold, else least "
       "loaded; least loaded if the loads differ much",
       "SGLang model gateway, policy cache_aware",
       {{"cache_threshold", 0.3}, {"balance_abs", 64}, {"balance_rel", 1.5}},
       Make<ThresholdRule>},
      {"smg",
       "longest cached prefix; least loaded if no engine has one, or if the load of this engine is "
       "far above the mean",
       "SMG, policy cache_aware with events",
       {{"balance_abs", 32}, {"balance_rel", 1.1}},
       Make<SmgRule>},
      {"dynamo",
       "overlap_weight * (queued and own prefill blocks - cached blocks) + blocks in use",
       "NVIDIA Dynamo, default cost of the KV router",
       {{"overlap_weight", 1}, {"host_weight", 0.75}},
       Make<DynamoRule>},
      {"dynamo_two_tier",
       "least loaded if the loads differ much, else longest cached prefix if its share of the "
       "prompt is above cache_threshold, else least loaded",
       "NVIDIA Dynamo, two-tier policy (#14498)",
       {{"cache_threshold", 0.5}, {"balance_abs", 32}, {"balance_rel", 1.1}},
       Make<ThresholdRule>},
      {"lmetric",
       "lowest uncached tokens * (requests + 1); a very frequent prompt also goes to other engines",
       "LMetric (OSDI 2026), arXiv 2603.15202",
       {{"queued_prefill", 1}, {"guard", 1}},
       Make<LMetricRule>},
      {"dualmap",
       "a hash assigns two engines to a prefix: of the two, the engine with more cached tokens, "
       "unless it has too much work",
       "DualMap (ICLR 2026), arXiv 2602.06502",
       {{"limit_tokens", 65536}},
       Make<DualMapRule>},
  };
}

}  // namespace kvcast::simulate
