// Selection of the worker that should serve a prompt. The functions compute with values that the
// caller measured; they are pure and thread-safe. RoundRobin has state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/core/ids.h"

namespace kvcast {

// Relative cost of a load: the number of tokens that the worker can compute while it loads one
// token from the tier. nullopt: not known; the selector then uses CostWeights::load_token for
// `cpu`, and CostWeights::load_storage_token for `storage`.
struct LoadCosts {
  std::optional<double> cpu;
  std::optional<double> storage;
};

// One worker, as input of the selection. All times are in seconds.
struct Candidate {
  WorkerId worker;
  int64_t reusable_tokens = 0;     // of the prompt, exact: PrefixIndex::Match
  int64_t speculative_tokens = 0;  // expected soon: SpeculativePrefixes::Match
  // Time until the engine has done its present work.
  double queue_s = 0;
  // Time to compute the tokens of the prompt that the worker does not hold and does not load.
  double compute_s = 0;
  // Time to load tokens of the prompt from host memory and storage.
  double load_s = 0;
  // The part of compute_s for tokens whose blocks only some groups of the worker hold. An earlier
  // prompt of another conversation stored these blocks. The worker must compute the tokens, as any
  // other worker must. The worker then also caches the missing blocks of the other groups at the
  // end of these tokens, so that the next prompt with this prefix hits. The caller must multiply
  // the time by the probability of such a prompt.
  double partial_s = 0;
  // Time to compute evicted tokens again. These are the tokens that the worker must evict for the
  // prompt, and that other conversations will need again.
  double eviction_s = 0;
};

// The cost of a worker, in seconds, is
//
//   queue_s + load_s + compute_s                          the prompt's own time to the first token
//   + work * compute_s                                    work that the fleet does for the prompt
//   + later * delay * compute_s * (2 queue_s + compute_s)   delay of the requests that come later
//   - partial * partial_s
//   + eviction * eviction_s
//
// `delay` is arrivals / (2 * (1 - utilisation)), with the arrivals of one worker per second and the
// utilisation of the fleet. The third line is the delay of later requests in a queue with random
// arrivals (M/G/1).
struct CostWeights {
  double work = 1.0;
  double later = 1.0;
  // Should be below 1 + work. A hit in all groups then always counts more than an equally long
  // prefix of only some groups.
  double partial = 1.0;
  double eviction = 1.0;
  // Only the caller reads the next two members, to compute Candidate::eviction_s and
  // Candidate::queue_s.
  //
  // Share of a worker's cache, in 0..1, that its conversations can use without evictions. If the
  // conversations need more, Candidate::eviction_s is above 0.
  double cache_share = 0.6;
  // Cost in seconds of each request in the worker's queue. The engine reports the number of these
  // requests.
  double queued_request = 0.0;
  // Used if LoadCosts has no value: the cost of a token that is loaded from host memory, and of a
  // token that is loaded from storage, in computed tokens.
  double load_token = 0.1;
  double load_storage_token = 0.75;
};

// Result of a selection.
struct Choice {
  WorkerId worker;
  double cost = 0;                 // seconds
  int64_t reusable_tokens = 0;     // exact, from the candidate
  int64_t speculative_tokens = 0;  // from the candidate
};

// Costs of one loaded token per tier, in computed tokens. A token from storage costs at least as
// much as a token from host memory, because storage is read into host memory first. A load may cost
// more than the computation of its tokens. The selector still counts this cost, because engines
// load each hit without a comparison of the two costs.
struct TokenLoadCosts {
  double cpu = 0;
  double storage = 0;
};
TokenLoadCosts CostsOfLoads(const LoadCosts& measured, const CostWeights& weights);

// The cost of one candidate, by the formula above.
double Cost(const Candidate& candidate, const CostWeights& weights, double delay = 0);
// The cost without the first line of the formula, which is the prompt's own time to the first
// token.
double FleetCost(const Candidate& candidate, const CostWeights& weights, double delay = 0);

// Returns the cheapest candidate. Among equal costs it prefers more exact reusable tokens, then the
// lower worker id. Equal inputs in any order therefore give the same choice. `allowed` empty: all
// candidates are allowed. nullopt: no candidate is allowed.
std::optional<Choice> SelectWorker(std::span<const Candidate> candidates,
                                   const CostWeights& weights, double delay = 0,
                                   std::span<const WorkerId> allowed = {});

// Round robin over the allowed candidates. It ignores cache and load. Thread-compatible.
class RoundRobin {
 public:
  // Returns the allowed candidate with the lowest id above the id of the previous choice. If there
  // is no such candidate, returns the allowed candidate with the lowest id. nullopt: no candidate
  // is allowed.
  std::optional<WorkerId> Next(std::span<const Candidate> candidates,
                               std::span<const WorkerId> allowed = {});

 private:
  std::optional<WorkerId> last_;
};

}  // namespace kvcast
