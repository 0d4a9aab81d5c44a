// kvcast's own rule: the selector and the load tracker of the router service, with virtual time.
// The fleet may have several routers. The requests go to the routers in turn, or by session.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apps/simulate/rule_table.h"
#include "router/service/route/request_router.h"

namespace kvcast::simulate {
namespace {

using router::Feedback;
using router::QueryAnswer;
using router::RequestRouter;
using router::RoutingConfig;

RoutingConfig ConfigOf(const RuleParameters& p) {
  RoutingConfig config;
  config.weights.work = p.at("work");
  config.weights.later = p.at("later");
  config.weights.partial = p.at("partial");
  config.weights.eviction = p.at("eviction");
  config.weights.cache_share = p.at("cache_share");
  config.booking_lifetime_ms = int64_t{1} << 40;  // every request of a simulation ends
  return config;
}

constexpr double kMaxRouters = 64;
// The least time between two messages with the load of a router; see LoadSharing.
constexpr double kGaugeGapSeconds = 0.01;

// One router of the fleet, and the load that this router has published to the other routers.
struct SimRouter {
  explicit SimRouter(const RoutingConfig& config, std::function<double()> draw)
      : router(config, std::move(draw)) {}

  RequestRouter router;
  FleetInFlight published;
  bool changed = false;
  double due_s = 0;  // the earliest time of the next message
};

class ServiceRule final : public Rule {
 public:
  ServiceRule(const RuleParameters& p, const RuleFleet& fleet)
      : fleet_(fleet),
        hints_(p.at("hints") != 0),
        will_not_return_(hints_ && p.at("will_not_return") != 0),
        gauges_(p.at("gauges") != 0),
        sticky_(p.at("sticky") != 0) {
    const auto routers = static_cast<size_t>(std::clamp(p.at("routers"), 1.0, kMaxRouters));
    while (routers_.size() < routers) {
      routers_.push_back(std::make_unique<SimRouter>(ConfigOf(p), [this] { return draw_; }));
      routers_.back()->router.ShareLoad([entry = routers_.back().get()] { entry->changed = true; });
    }
  }

  size_t Choose(const RuleInput& input) override {
    draw_ = input.draw;
    router_of_[input.request] = sticky_ ? static_cast<size_t>(input.session) : input.request;
    ShareLoads(input.now_s);
    router::Query query;
    query.prompt_tokens = input.prompt_tokens;
    query.request_id = std::to_string(input.request);
    std::vector<QueryAnswer> answers;
    for (size_t i = 0; i < input.engines.size(); ++i) {
      QueryAnswer answer;
      answer.name = std::to_string(input.engines[i].engine);
      answer.match = input.matches[i];
      answer.hash_block_size = input.block_tokens;
      answer.state = SourceState::kSynced;
      answer.weight = 1;
      answer.exact = true;
      answer.prefixes = input.names;
      answer.load_costs.cpu = fleet_.prefill_tokens_per_s / fleet_.load_tokens_per_s;
      answer.cache_tokens = fleet_.cache_tokens;
      answers.push_back(std::move(answer));
    }
    const auto decision =
        RouterOf(input.request).Decide(query, std::move(answers), 1000 * input.now_s);
    predicted_s_ = router::FirstTokenSeconds(decision->candidates[decision->chosen].parts);
    keep_prefix_tokens_ = hints_ ? decision->keep_prefix_tokens : 0;
    will_not_return_after_ = will_not_return_ ? decision->will_not_return_after : std::nullopt;
    return decision->chosen;
  }

  void Admitted(size_t request, int64_t hit_tokens, double now_s) override {
    ShareLoads(now_s);
    (void)RouterOf(request).Admit(std::to_string(request), hit_tokens);
  }
  void FirstToken(size_t request, double now_s) override {
    SendFeedback(request, Feedback::Event::kFirstToken, now_s);
  }
  void Finished(size_t request, double now_s) override {
    SendFeedback(request, Feedback::Event::kFinished, now_s);
  }
  std::optional<double> PredictedFirstToken() const override { return predicted_s_; }
  int64_t KeepPrefixTokens() const override { return keep_prefix_tokens_; }
  std::optional<int64_t> WillNotReturnAfter() const override { return will_not_return_after_; }
  void Applied(size_t engine, const EventBatch& batch) override {
    for (const auto& entry : routers_) {
      entry->router.OnBatch(WorkerId(static_cast<uint32_t>(engine)), batch);
    }
  }
  void Removed(size_t engine) override {
    for (const auto& entry : routers_) {
      entry->router.OnRemoved(WorkerId(static_cast<uint32_t>(engine)));
    }
  }

 private:
  RequestRouter& RouterOf(size_t request) {
    return routers_[router_of_[request] % routers_.size()]->router;
  }

  // Publishes each changed load whose message is due at or before `now_s`. Choose and the reports
  // of requests call this function first, so they publish a due load before they change it. Only
  // Removed can change a load whose message is due.
  void ShareLoads(double now_s) {
    if (!gauges_ || routers_.size() == 1) return;
    bool any = false;
    for (const auto& entry : routers_) {
      if (!entry->changed || entry->due_s > now_s) continue;
      entry->changed = false;
      entry->due_s = now_s + kGaugeGapSeconds;
      entry->published = entry->router.OwnLoad(1000 * now_s);
      any = true;
    }
    if (!any) return;
    for (const auto& reader : routers_) {
      FleetInFlight sum;
      for (const auto& entry : routers_) {
        if (entry != reader) sum += entry->published;
      }
      reader->router.SetPeerLoads(std::move(sum), 1000 * now_s);
    }
  }

  void SendFeedback(size_t request, Feedback::Event event, double now_s) {
    ShareLoads(now_s);
    Feedback feedback;
    feedback.event = event;
    feedback.request_id = std::to_string(request);
    (void)RouterOf(request).Take(
        feedback,
        1000 * now_s);  // ignores the error: a removed engine has no booking
  }

  const RuleFleet fleet_;
  const bool hints_;
  const bool will_not_return_;
  double draw_ = 0;
  double predicted_s_ = 0;
  int64_t keep_prefix_tokens_ = 0;
  std::optional<int64_t> will_not_return_after_;
  const bool gauges_;
  const bool sticky_;
  std::unordered_map<size_t, size_t> router_of_;  // by request: the router, modulo routers_.size()
  std::vector<std::unique_ptr<SimRouter>> routers_;
};

}  // namespace

RuleInfo KvcastRule() {
  const CostWeights weights;
  return {"kvcast",
          "the selector of the router service",
          "kvcast, router/service/route/request_router.h",
          {{"work", weights.work},
           {"later", weights.later},
           {"partial", weights.partial},
           {"eviction", weights.eviction},
           {"cache_share", weights.cache_share},
           {"hints", 0},            // 1: the engines get the hints of the decisions
           {"will_not_return", 1},  // 0: the hints have no will_not_return_after
           {"routers", 1},          // from 1 to 64; the requests go to them in turn
           {"gauges", 1},           // 0: the routers do not share their loads
           {"sticky", 0}},          // 1: the requests of a session go to one router
          [](const RuleParameters& p, const RuleFleet& fleet) -> std::unique_ptr<Rule> {
            return std::make_unique<ServiceRule>(p, fleet);
          }};
}

}  // namespace kvcast::simulate
