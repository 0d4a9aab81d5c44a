// Selector: chooses the worker that should serve a prompt. Pure functions over values that the
// caller measured; thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/core/ids.h"

namespace kvcast {

// The current work of a worker, as the router counts it.
struct WorkerLoad {
  int64_t active_prefill_tokens = 0;  // routed to the worker and not computed yet
  int64_t decode_blocks = 0;          // KV blocks of requests in decode
  int64_t queued_requests = 0;        // as reported by the engine
};

// Relative cost of a load: the number of tokens that the worker can compute while it loads one
// token from the tier. nullopt: not known; the selector uses CostWeights::load_token and
// load_storage_token.
struct LoadCosts {
  std::optional<double> cpu;
  std::optional<double> storage;
};

// One worker, as input of the selection. All lengths are in tokens.
struct Candidate {
  WorkerId worker;
  int64_t reusable_tokens = 0;  // exact: PrefixIndex::Match
  // Exact, including loads from host memory. 0: not queried.
  int64_t with_cpu_tokens = 0;
  // Exact, including loads from host memory and storage. 0: not queried.
  int64_t with_storage_tokens = 0;
  int64_t speculative_tokens = 0;  // expected soon: SpeculativePrefixes::Match
  // The longest prefix that at least one group holds: the maximum of WorkerMatch::per_group_tokens.
  // Tokens beyond reusable_tokens are not reusable, but may still favour this worker; see
  // affinity_token.
  int64_t resident_tokens = 0;
  WorkerLoad load;
  LoadCosts load_costs;
};

// The cost of a worker, in tokens to compute, is
//
//   recompute_token * (prompt - reusable - from_cpu - from_storage)
//   + cpu_token * from_cpu + storage_token * from_storage
//   + active_prefill_token * load.active_prefill_tokens + decode_block * load.decode_blocks
//   + queued_request * load.queued_requests
//   - affinity_token * max(resident - reusable - from_cpu - from_storage, 0)
//
// with
//
//   reusable      = max(reusable_tokens, speculative_tokens), at most the prompt
//   from_cpu      = max(with_cpu - reusable, 0)
//   from_storage  = max(with_storage - reusable - from_cpu, 0)
//   cpu_token     = recompute_token * load_costs.cpu, or load_token if load_costs.cpu is not known
//   storage_token = the same with load_costs.storage and load_storage_token, at least cpu_token,
//                   because storage is read into host memory first
//
// A load may cost more than the computation of its tokens. The cost still includes it, because
// engines load each hit without a comparison.
struct CostWeights {
  double recompute_token = 1.0;
  // Used if LoadCosts has no value: the cost of a token that is loaded from host memory, and of a
  // token that is loaded from storage. The cost is prefill speed / load speed, both in tokens per
  // second.
  double load_token = 0.1;
  double load_storage_token = 0.75;
  // Queued prefill work delays the prompt as much as its own tokens do.
  double active_prefill_token = 1.0;
  // Depends on model and machine; measure it for your deployment.
  double decode_block = 1.0;
  // Cost in tokens of one request in the worker's queue, as the engine reports the queue.
  double queued_request = 0.0;
  // Bonus per token of a prefix that only some groups hold. The worker must compute such a prefix
  // again, like any other worker. It then caches the blocks of the missing groups at this boundary
  // for the next turn, and the fleet does not hold the prefix twice. The value should be below
  // recompute_token: a real hit then always counts more.
  double affinity_token = 0.0;
};

// Result of a selection.
struct Choice {
  WorkerId worker;
  double cost = 0;
  int64_t reusable_tokens = 0;     // exact, from the candidate
  int64_t speculative_tokens = 0;  // from the candidate
};

// Costs of one loaded token per tier, in tokens to compute. CostsOfLoads applies the rules for
// cpu_token and storage_token above.
struct TokenLoadCosts {
  double cpu = 0;
  double storage = 0;
};
TokenLoadCosts CostsOfLoads(const LoadCosts& measured, const CostWeights& weights);

// The cost of one candidate, by the formula above.
double Cost(const Candidate& candidate, int64_t prompt_tokens, const CostWeights& weights);

// Returns the cheapest candidate. Among equal costs it prefers more exact reusable tokens, then the
// lower worker id. Equal inputs in any order therefore give the same choice. `allowed` empty: all
// candidates are allowed. nullopt: no candidate is allowed.
std::optional<Choice> SelectWorker(std::span<const Candidate> candidates, int64_t prompt_tokens,
                                   const CostWeights& weights,
                                   std::span<const WorkerId> allowed = {});

// Round robin over the allowed candidates. It ignores cache and load. Thread-compatible.
class RoundRobin {
 public:
  // Returns the allowed candidate with the lowest id above the id of the previous choice, or else
  // the allowed candidate with the lowest id. nullopt: no candidate is allowed.
  std::optional<WorkerId> Next(std::span<const Candidate> candidates,
                               std::span<const WorkerId> allowed = {});

 private:
  std::optional<WorkerId> last_;
};

}  // namespace kvcast
