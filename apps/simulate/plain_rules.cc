// Rules that read no index: round robin, least loaded, and hashes of the session.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "apps/simulate/random.h"
#include "apps/simulate/rule_table.h"

namespace kvcast::simulate {
namespace {

class RoundRobinRule final : public Rule {
 public:
  size_t Choose(const RuleInput& input) override { return next_++ % input.engines.size(); }

 private:
  size_t next_ = 0;
};

class LeastLoadedRule final : public Rule {
 public:
  size_t Choose(const RuleInput& input) override {
    std::vector<double> costs;
    for (const RuleEngine& engine : input.engines) {
      costs.push_back(static_cast<double>(engine.load.requests));
    }
    return Cheapest(costs, input.draw);
  }
};

// The engines in the order of a rendezvous hash of the session.
std::vector<size_t> Homes(const RuleInput& input) {
  std::vector<std::pair<uint64_t, size_t>> ranked;
  for (size_t i = 0; i < input.engines.size(); ++i) {
    ranked.emplace_back(Mix(static_cast<uint64_t>(input.session), input.engines[i].engine), i);
  }
  std::ranges::sort(ranked, std::greater<>());
  std::vector<size_t> homes;
  for (const auto& [hash, position] : ranked) homes.push_back(position);
  return homes;
}

class SessionHashRule final : public Rule {
 public:
  size_t Choose(const RuleInput& input) override { return Homes(input).front(); }
};

class BoundedHashRule final : public Rule {
 public:
  explicit BoundedHashRule(double factor) : factor_(factor) {}

  size_t Choose(const RuleInput& input) override {
    int64_t total = 1;
    for (const RuleEngine& engine : input.engines) total += engine.load.requests;
    const double bound =
        std::ceil(factor_ * static_cast<double>(total) / static_cast<double>(input.engines.size()));
    const std::vector<size_t> homes = Homes(input);
    for (const size_t home : homes) {
      if (static_cast<double>(input.engines[home].load.requests + 1) <= bound) return home;
    }
    return homes.front();
  }

 private:
  const double factor_;
};

}  // namespace

std::vector<RuleInfo> PlainRules() {
  return {
      {"round_robin",
       "one engine after the other",
       "common baseline",
       {},
       [](const RuleParameters&, const RuleFleet&) -> std::unique_ptr<Rule> {
         return std::make_unique<RoundRobinRule>();
       }},
      {"least_loaded",
       "fewest unfinished requests",
       "common baseline",
       {},
       [](const RuleParameters&, const RuleFleet&) -> std::unique_ptr<Rule> {
         return std::make_unique<LeastLoadedRule>();
       }},
      {"session_hash",
       "rendezvous hash of the conversation",
       "common baseline",
       {},
       [](const RuleParameters&, const RuleFleet&) -> std::unique_ptr<Rule> {
         return std::make_unique<SessionHashRule>();
       }},
      {"bounded_hash",
       "rendezvous hash of the conversation; skips engines that would then have more than `factor` "
       "times the mean number of requests, rounded up",
       "consistent hashing with bounded loads (Mirrokni et al., 2017)",
       {{"factor", 1.25}},
       [](const RuleParameters& p, const RuleFleet&) -> std::unique_ptr<Rule> {
         return std::make_unique<BoundedHashRule>(p.at("factor"));
       }},
  };
}

}  // namespace kvcast::simulate
