// SPDX-License-Identifier: Apache-2.0
#include "router/select/fleet_forecast.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvcast {
namespace {

constexpr double kRateSeconds = 60;  // time constant of arrivals and work
constexpr double kMaxUtilisation = 0.95;
// An engine should keep the prefix up to a boundary if the chance of another prompt with this
// boundary is at least kKeepChance.
constexpr double kKeepChance = 0.5;
// An engine may evict the tail of a prompt first if the chance that the tail is used again is at
// most kReturnChance.
constexpr double kReturnChance = 0.1;
// Maximum number of prefixes before a boundary that are compared with the known boundaries.
constexpr size_t kLookBack = 256;

}  // namespace

void FleetForecast::Decayed::Add(double value, double now_s) {
  sum = sum * std::exp((at_s - now_s) / kRateSeconds) + value;
  at_s = now_s;
}

double FleetForecast::Decayed::PerSecond(double now_s, double since_s) const {
  const double decayed = sum * std::exp((at_s - now_s) / kRateSeconds);
  const double seconds = kRateSeconds * -std::expm1((since_s - now_s) / kRateSeconds);
  return decayed / std::max(seconds, 1.0);
}

FleetForecast::FleetForecast(const ForecastConfig& config)
    : config_(config), conversations_(config.conversations_max) {}

StepEstimator& FleetForecast::EstimatorOf(std::string_view model) {
  auto it = estimators_.find(model);
  if (it == estimators_.end()) {
    it = estimators_.emplace(std::string(model), StepEstimator(config_.start)).first;
  }
  return it->second;
}

EngineClock& FleetForecast::ClockOf(WorkerId worker, std::string_view model) {
  auto it = engines_.find(worker);
  if (it == engines_.end()) {
    Engine engine{EngineClock(config_.step_tokens, config_.late_s), std::string(model)};
    engine.clock.SetOthers(others(worker), now_s_, EstimatorOf(model).cost());
    it = engines_.emplace(worker, std::move(engine)).first;
  }
  return it->second.clock;
}

void FleetForecast::Begin(std::span<const PrefixName> prefixes, double now_s) {
  now_s_ = now_s;
  prefixes_ = prefixes;
  boundary_prefixes_ = 0;
  continues_ = conversations_.Find(prefixes);
  if (!first_s_) first_s_ = now_s;
  const auto workers = static_cast<double>(std::max<size_t>(engines_.size(), 1));
  const double work = work_s_.PerSecond(now_s, *first_s_) + others_.work_s_per_s;
  const double arrivals = arrivals_.PerSecond(now_s, *first_s_) + others_.arrivals_per_s;
  const double utilisation = std::min(work / workers, kMaxUtilisation);
  delay_ = arrivals / workers / (2 * (1 - utilisation));
}

size_t FleetForecast::ResidentPrefixes(const Facts& facts) const {
  if (facts.tokens_per_prefix <= 0) return 0;
  const int64_t resident = std::min(facts.resident_tokens, facts.prompt_tokens);
  return std::min(static_cast<size_t>(resident / facts.tokens_per_prefix), prefixes_.size());
}

int64_t FleetForecast::ContextOf(const Facts& facts) const {
  return std::clamp<int64_t>(std::max(facts.reusable_tokens, facts.speculative_tokens) +
                                 facts.from_cpu_tokens + facts.from_storage_tokens,
                             0, facts.prompt_tokens);
}

int64_t FleetForecast::LastPromptTokens(WorkerId worker) const {
  if (!continues_) return 0;
  const SequenceBook::Sequence& own = conversations_.of(*continues_);
  return own.worker == worker ? own.tokens : 0;
}

int64_t FleetForecast::KeepPrefixTokens(const Facts& facts) const {
  if (boundary_prefixes_ == 0) return 0;
  const int64_t tokens = static_cast<int64_t>(boundary_prefixes_) * facts.tokens_per_prefix;
  const bool expected =
      boundaries_.ChanceOfAnother(prefixes_[boundary_prefixes_ - 1]) >= kKeepChance;
  return expected && tokens > ContextOf(facts) ? tokens : 0;
}

bool FleetForecast::IsBoundaryKnown() const {
  return boundary_prefixes_ > 0 && boundaries_.Knows(prefixes_[boundary_prefixes_ - 1]);
}

bool FleetForecast::IsEarlierBoundaryKnown() const {
  const size_t last = std::max<size_t>(boundary_prefixes_, 1) - 1;
  const auto before = prefixes_.first(last).last(std::min(last, kLookBack));
  return std::ranges::any_of(before, [this](PrefixName name) { return boundaries_.Knows(name); });
}

std::optional<int64_t> FleetForecast::WillNotReturnAfter(const Facts& facts) {
  if (!IsBoundaryKnown() || returns_.ChanceAtMost(turn(), now_s_) > kReturnChance) {
    return std::nullopt;
  }
  return static_cast<int64_t>(boundary_prefixes_) * facts.tokens_per_prefix;
}

Candidate FleetForecast::Weigh(const Facts& facts, const CostWeights& weights) {
  const StepCost& cost = EstimatorOf(facts.model).cost();
  const EngineClock& clock = ClockOf(facts.worker, facts.model);
  const int64_t context = ContextOf(facts);
  const int64_t tokens = facts.prompt_tokens - context;
  const double token_s = cost[WorkPart::kPrefillTokens] * clock.slowdown();
  Candidate candidate;
  candidate.worker = facts.worker;
  candidate.reusable_tokens = facts.reusable_tokens;
  candidate.speculative_tokens = facts.speculative_tokens;
  const EngineClock::Prediction prediction = clock.Predict(now_s_, context, tokens, cost);
  candidate.queue_s = prediction.first_token_s - prediction.compute_s;
  candidate.compute_s = prediction.compute_s;
  candidate.load_s =
      token_s * (facts.load_costs.cpu * static_cast<double>(facts.from_cpu_tokens) +
                 facts.load_costs.storage * static_cast<double>(facts.from_storage_tokens));
  const size_t resident = ResidentPrefixes(facts);
  const int64_t own_end = LastPromptTokens(facts.worker);
  if (own_end == 0) boundary_prefixes_ = std::max(boundary_prefixes_, resident);
  // If the conversation's last prompt went to this worker, the worker holds the window blocks at
  // the end of that prompt. Only the tokens after this end count.
  const int64_t partial =
      static_cast<int64_t>(resident) * facts.tokens_per_prefix - std::max(context, own_end);
  if (partial > 0) {
    candidate.partial_s = token_s * static_cast<double>(partial) *
                          boundaries_.ChanceOfAnother(prefixes_[resident - 1]);
  }
  if (facts.cache_tokens > 0) {
    const double needed = conversations_.ExpectedTokens(facts.worker, continues_, now_s_) +
                          static_cast<double>(facts.prompt_tokens) -
                          weights.cache_share * static_cast<double>(facts.cache_tokens);
    candidate.eviction_s =
        token_s * std::clamp(needed, 0.0, static_cast<double>(facts.prompt_tokens));
  }
  return candidate;
}

void FleetForecast::Routed(uint64_t request, const Facts& facts) {
  const int64_t context = ContextOf(facts);
  const StepCost& cost = EstimatorOf(facts.model).cost();
  const int64_t tokens = facts.prompt_tokens - context;
  const bool known = IsBoundaryKnown();
  if (continues_) returns_.Continued(*continues_);
  if (boundary_prefixes_ > 0 && !known && IsEarlierBoundaryKnown()) returns_.Shared();
  if (boundary_prefixes_ > 0) boundaries_.Seen(prefixes_[boundary_prefixes_ - 1]);
  ClockOf(facts.worker, facts.model).Sent(request, now_s_, context, tokens, cost);
  arrivals_.Add(1, now_s_);
  work_s_.Add(cost.Prefill(context, tokens), now_s_);
  Sent& sent = sent_[request];
  sent.worker = facts.worker;
  sent.model = facts.model;
  sent.loaded_tokens = facts.from_cpu_tokens + facts.from_storage_tokens;
  if (!prefixes_.empty()) {
    sent.conversation =
        conversations_.Routed(continues_, prefixes_, facts.worker, facts.prompt_tokens, now_s_);
    if (known) returns_.Routed(*sent.conversation, turn(), now_s_);
  }
  continues_.reset();
}

void FleetForecast::Admitted(uint64_t request, int64_t reused_tokens) {
  const auto it = sent_.find(request);
  if (it == sent_.end()) return;
  ClockOf(it->second.worker, it->second.model)
      .Admitted(request, reused_tokens + it->second.loaded_tokens);
}

void FleetForecast::FirstToken(uint64_t request, double now_s) {
  const auto it = sent_.find(request);
  if (it == sent_.end()) return;
  const auto& [worker, model, conversation, loaded] = it->second;
  StepEstimator& estimator = EstimatorOf(model);
  const auto observed = ClockOf(worker, model).FirstToken(request, now_s, estimator.cost());
  if (!observed) return;
  estimator.Observe(observed->work, observed->seconds);
  // The costs describe an average worker of the model. So the slowdowns of these workers are scaled
  // to the geometric mean 1.
  double sum = 0;
  int engines = 0;
  for (const auto& [id, engine] : engines_) {
    if (engine.model != model) continue;
    sum += std::log(engine.clock.slowdown());
    ++engines;
  }
  const double factor = std::exp(-sum / engines);
  for (auto& [id, engine] : engines_) {
    if (engine.model == model) engine.clock.ScaleSlowdown(factor);
  }
}

void FleetForecast::Ended(uint64_t request, double now_s) {
  const auto it = sent_.find(request);
  if (it == sent_.end()) return;
  ClockOf(it->second.worker, it->second.model).Ended(request);
  if (it->second.conversation) conversations_.Ended(*it->second.conversation, now_s);
  sent_.erase(it);
}

void FleetForecast::Removed(WorkerId worker) {
  engines_.erase(worker);
  conversations_.Forget(worker);
  std::erase_if(sent_, [&](const auto& entry) {
    if (entry.second.worker != worker) return false;
    // The conversation may continue on another worker.
    if (entry.second.conversation) conversations_.Ended(*entry.second.conversation, now_s_);
    return true;
  });
}

FleetInFlight FleetForecast::Own(double now_s) {
  FleetInFlight own;
  for (auto& [worker, engine] : engines_) {
    const InFlight load = engine.clock.Own(now_s, EstimatorOf(engine.model).cost());
    if (!load.empty()) own.workers.emplace(worker, load);
  }
  if (first_s_) {
    own.arrivals_per_s = arrivals_.PerSecond(now_s, *first_s_);
    own.work_s_per_s = work_s_.PerSecond(now_s, *first_s_);
  }
  return own;
}

InFlight FleetForecast::others(WorkerId worker) const {
  const auto it = others_.workers.find(worker);
  return it == others_.workers.end() ? InFlight() : it->second;
}

void FleetForecast::SetOthers(FleetInFlight load, double now_s) {
  others_ = std::move(load);
  for (auto& [worker, engine] : engines_) {
    engine.clock.SetOthers(others(worker), now_s, EstimatorOf(engine.model).cost());
  }
}

}  // namespace kvcast
