// FleetForecast: predicts, for each worker, the time to the first token of a prompt, and the cost
// for later requests if this worker gets the prompt. It learns from the requests that the router
// has sent, and from the reports about these requests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "kvcast/core/ids.h"
#include "kvcast/router/selector.h"
#include "kvcast/router/speculative_prefixes.h"
#include "router/select/boundary_book.h"
#include "router/select/engine_clock.h"
#include "router/select/in_flight.h"
#include "router/select/return_book.h"
#include "router/select/sequence_book.h"
#include "router/select/step_estimator.h"

namespace kvcast {

struct ForecastConfig {
  // Maximum number of tokens that an engine computes in a step (vLLM's max_num_batched_tokens).
  int64_t step_tokens = 8192;
  // The costs of a step that are used until the first reports. An 8B model on one H100 has about
  // these costs.
  StepCost start{{0.01, 5e-5, 5e-10, 5e-5, 3e-8}};
  double late_s = 0.05;              // see EngineClock
  size_t conversations_max = 16384;  // see SequenceBook
};

// Thread-compatible. All times are seconds of one clock that does not go back.
class FleetForecast {
 public:
  explicit FleetForecast(const ForecastConfig& config = {});

  // The router's data about a prompt on one worker. Lengths are in tokens.
  struct Facts {
    WorkerId worker;
    std::string_view model;  // workers of one model have the same costs
    int64_t prompt_tokens = 0;
    int64_t reusable_tokens = 0;      // the prefix that the worker serves from the GPU, exact
    int64_t speculative_tokens = 0;   // the prefix that the worker is expected to hold soon
    int64_t from_cpu_tokens = 0;      // loaded from the CPU tier, after the reusable tokens
    int64_t from_storage_tokens = 0;  // loaded from the storage tier, after the CPU tier's tokens
    int64_t resident_tokens = 0;      // the longest prefix that at least one group holds
    // Difference in length between two consecutive prefixes of Begin; 0: not known. All Facts of a
    // decision have the same value.
    int64_t tokens_per_prefix = 0;
    TokenLoadCosts load_costs;
    int64_t cache_tokens = 0;  // capacity of the worker's GPU cache; 0: not known
  };
  // Must be called before the Weigh calls of a decision. `prefixes`: names of the prompt's
  // prefixes, from the shortest to the longest. The span must be valid until the last call for this
  // decision. Empty: the prompt belongs to no conversation.
  void Begin(std::span<const PrefixName> prefixes, double now_s);
  // Returns the predictions for the prompt of the latest Begin on one worker.
  Candidate Weigh(const Facts& facts, const CostWeights& weights);
  // Seconds that a worker of the model needs for a prompt if the worker holds no block of the
  // prompt.
  double PromptSeconds(std::string_view model, int64_t prompt_tokens) {
    return EstimatorOf(model).cost().Prefill(0, std::max<int64_t>(prompt_tokens, 1));
  }
  // The argument `delay` of Cost (selector.h) for the decision.
  double delay() const { return delay_; }

  // Must be called if the prompt of the latest Begin goes to facts.worker. `request`: a number that
  // the caller chooses. Two requests that have not ended must not have the same number.
  void Routed(uint64_t request, const Facts& facts);
  // The hint CacheRequest::keep_prefix_tokens for the engine to which the prompt of the latest
  // Begin goes. 0: no hint. Must be called after Weigh of all workers, and before Routed.
  int64_t KeepPrefixTokens(const Facts& facts) const;
  // The hint CacheRequest::will_not_return_after; nullopt: no hint. Must be called at the same
  // times as KeepPrefixTokens.
  std::optional<int64_t> WillNotReturnAfter(const Facts& facts);
  // Reports about routed requests. A report about an unknown request is ignored.
  void Admitted(uint64_t request, int64_t reused_tokens);
  void FirstToken(uint64_t request, double now_s);
  void Ended(uint64_t request, double now_s);
  // Must be called after a worker was removed.
  void Removed(WorkerId worker);

  // The load of the routed requests that have not ended.
  FleetInFlight Own(double now_s);
  // Replaces the load of the other routers. The predictions count this load like the own load.
  void SetOthers(FleetInFlight others, double now_s);
  InFlight others(WorkerId worker) const;

 private:
  struct Sent {
    WorkerId worker;
    std::string model;
    std::optional<PrefixName> conversation;  // nullopt: no prefix of the prompt has a name
    int64_t loaded_tokens = 0;               // tokens that the worker was expected to load
  };
  // A sum in which the weight of each value decays with its age.
  struct Decayed {
    double sum = 0;
    double at_s = 0;  // time of the latest Add
    void Add(double value, double now_s);
    // The average rate since `since_s`. Recent values have more weight.
    double PerSecond(double now_s, double since_s) const;
  };

  // Number of prefixes of Begin that at least one group of the worker holds.
  size_t ResidentPrefixes(const Facts& facts) const;
  // Tokens of the prompt that the worker need not compute.
  int64_t ContextOf(const Facts& facts) const;
  // Tokens of the conversation's last prompt, if that prompt went to the worker; otherwise 0.
  int64_t LastPromptTokens(WorkerId worker) const;
  // True: an earlier prompt had the prompt's boundary (return_book.h).
  bool IsBoundaryKnown() const;
  // True: an earlier prompt had a boundary that is shorter than the prompt's boundary, by at most
  // kLookBack prefixes.
  bool IsEarlierBoundaryKnown() const;
  Turn turn() const { return continues_ ? Turn::kLater : Turn::kFirst; }

  struct Engine {
    EngineClock clock;
    std::string model;
  };

  StepEstimator& EstimatorOf(std::string_view model);
  EngineClock& ClockOf(WorkerId worker, std::string_view model);

  const ForecastConfig config_;
  std::map<std::string, StepEstimator, std::less<>> estimators_;
  std::unordered_map<WorkerId, Engine> engines_;
  FleetInFlight others_;
  SequenceBook conversations_;
  BoundaryBook boundaries_;
  ReturnBook returns_;
  std::unordered_map<uint64_t, Sent> sent_;
  // Of the decision in progress.
  double now_s_ = 0;
  double delay_ = 0;
  std::span<const PrefixName> prefixes_;
  // The conversation that the prompt continues. nullopt: the prompt begins a conversation.
  std::optional<PrefixName> continues_;
  // Number of prefixes of Begin up to the prompt's boundary; 0: the prompt has no boundary. The
  // boundary is the end of the longest prefix that a worker holds. The worker that got the last
  // prompt of the conversation does not count.
  size_t boundary_prefixes_ = 0;
  std::optional<double> first_s_;  // time of the first decision
  Decayed arrivals_;               // routed requests
  Decayed work_s_;                 // seconds of prefill of these requests
};

}  // namespace kvcast
