// Selector: which worker should take a prompt. Pure functions over what the caller measured.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/core/ids.h"

namespace kvcast {

// What a worker is busy with, as the router counts it.
struct WorkerLoad {
  int64_t active_prefill_tokens = 0;  // routed to the worker and not computed yet
  int64_t decode_blocks = 0;          // KV blocks of requests that are decoding
  int64_t queued_requests = 0;        // as the engine reports them
};

// Tokens that the worker computes while it loads one from the tier. nullopt: not known, the
// selector takes CostWeights::load_token and load_storage_token instead.
struct LoadCosts {
  std::optional<double> cpu;
  std::optional<double> storage;
};

// One worker as the selector sees it.
struct Candidate {
  WorkerId worker;
  int64_t reusable_tokens = 0;      // exact: PrefixIndex::Match
  int64_t with_cpu_tokens = 0;      // exact, loads from host memory included; 0: not asked
  int64_t with_storage_tokens = 0;  // loads from storage included too; 0: not asked
  int64_t speculative_tokens = 0;   // expected soon: SpeculativePrefixes::Match
  // Longest prefix that at least one group still holds: the largest of WorkerMatch's per-group
  // figures. Not reusable beyond reusable_tokens, but worth staying close to, see affinity_token.
  int64_t resident_tokens = 0;
  WorkerLoad load;
  LoadCosts load_costs;
};

// The cost of a worker, in tokens to compute:
//   recompute_token * (prompt - reusable - from_cpu - from_storage)
//   + cpu_token * from_cpu + storage_token * from_storage
//   + active_prefill_token * load.active_prefill_tokens + decode_block * load.decode_blocks
//   + queued_request * load.queued_requests
//   - affinity_token * max(resident - reusable - from_cpu - from_storage, 0)
// where reusable is the larger of the exact and the speculative figure, at most the prompt,
// from_cpu = max(with_cpu - reusable, 0), and from_storage = max(with_storage - reusable -
// from_cpu, 0). cpu_token is recompute_token * load_costs.cpu, or else load_token; storage_token
// likewise, and at least cpu_token, because storage is read into host memory first.
//
// A load may cost more than to compute the tokens: engines load each hit without a comparison.
struct CostWeights {
  double recompute_token = 1.0;
  // Of a token that is loaded from host memory, and from storage, where LoadCosts does not say it:
  // prefill speed / load speed, both in tokens per second.
  double load_token = 0.1;
  double load_storage_token = 0.75;
  double active_prefill_token = 1.0;  // work ahead in the queue delays the prompt like its own
  double decode_block = 1.0;          // depends on model and machine: measure yours
  double queued_request = 0.0;        // of one that the router did not route, in tokens
  // A worker that holds a prefix in one group only must compute it again, like any other; but it
  // then keeps the missing groups' blocks at that boundary for the next turn, and the fleet does
  // not hold the prefix twice. Below recompute_token, so that a real hit always counts for more.
  double affinity_token = 0.0;
};

struct Choice {
  WorkerId worker;
  double cost = 0;
  int64_t reusable_tokens = 0;     // exact, as given
  int64_t speculative_tokens = 0;  // as given
};

// Cost of one token that is loaded from each tier.
struct TokenLoadCosts {
  double cpu = 0;
  double storage = 0;
};
TokenLoadCosts CostsOfLoads(const LoadCosts& measured, const CostWeights& weights);

double Cost(const Candidate& candidate, int64_t prompt_tokens, const CostWeights& weights);

// The cheapest candidate; among equals the one with more exact tokens, then the lower worker id, so
// that equal inputs in any order give one choice. `allowed` empty: all. nullopt: nobody is allowed.
std::optional<Choice> SelectWorker(std::span<const Candidate> candidates, int64_t prompt_tokens,
                                   const CostWeights& weights,
                                   std::span<const WorkerId> allowed = {});

// Round robin over the allowed candidates, blind to cache and load. Thread-compatible.
class RoundRobin {
 public:
  // The allowed candidate with the lowest id above the last choice's, or else the lowest of all.
  std::optional<WorkerId> Next(std::span<const Candidate> candidates,
                               std::span<const WorkerId> allowed = {});

 private:
  std::optional<WorkerId> last_;
};

}  // namespace kvcast
