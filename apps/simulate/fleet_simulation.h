// RunFleet: one run of one slice, in virtual time. The run uses simulated engines with real
// block pools, the real index, and one selection rule.
//
// The engines publish real events. The index gets each batch after a delay. A rule chooses an
// engine for each request, from the index's answers. Everything happens in one thread, in an order
// that depends only on the arguments. So two runs with equal arguments give equal results, bit for
// bit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "apps/engine/host_tier_config.h"
#include "apps/simulate/prompts.h"
#include "apps/simulate/rule_table.h"
#include "apps/simulate/sim_models.h"
#include "apps/simulate/workload.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::simulate {

// The kind of the index that the router uses for the engines' caches.
enum class IndexKind : uint8_t {
  kExact,        // MatchPolicy::kExact
  kFullOnly,     // MatchPolicy::kFullOnly
  kAnyGroup,     // MatchPolicy::kAnyGroup
  kApproximate,  // ApproximateIndex: no events
};
// "exact", "full", "any", "approx".
std::string_view IndexKindName(IndexKind kind);
std::optional<IndexKind> ParseIndexKind(std::string_view name);

struct FleetOptions {
  int64_t engines = 8;
  int64_t cpu_blocks = 0;  // host-memory blocks of each engine, a second tier of its cache; 0: none
  tools::OffloadKind offload = tools::OffloadKind::kMirrorEager;
  int64_t blocks_per_chunk = 1;  // only for OffloadKind::kConnector
  double delay_s = 0.002;        // from the publication of a batch until the index has it
  // Probability that a batch is lost. The index gets a lost batch by a replay, together with the
  // engine's next batch that is not lost, 3 * delay_s after the publication of this next batch. If
  // no such batch follows, the lost batch never reaches the index.
  double loss = 0;
  uint64_t seed = 1;
  // Faults. `slow_factor`: all times of engine 0 are multiplied by it. `kill_at_s`: engine 0 ends
  // at this time, and its requests are sent again one second later. nullopt: no engine ends.
  double slow_factor = 1;
  std::optional<double> kill_at_s;
};

struct RunResult {
  // The warm-up is the first 15 % of the requests, by arrival. The members up to missed_tokens
  // cover the requests after the warm-up. The members after missed_tokens cover all requests.
  std::vector<double> first_token_s;  // time to the first token, by request
  // |predicted - real| / real for the requests of first_token_s. `real` is the time from the latest
  // choice of an engine to the first token. Empty if the rule does not predict.
  std::vector<double> prediction_error;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // on the GPU, at first admission
  int64_t loaded_tokens = 0;  // from host memory, at first admission
  int64_t wrong_promise_tokens =
      0;                      // tokens that the router predicted and the engine did not reuse
  int64_t missed_tokens = 0;  // tokens that the engine reused and the router did not predict
  // Number of first admissions at which the index had all batches of the engine.
  int64_t exact_checked = 0;
  int64_t exact_equal = 0;  // of exact_checked: the index predicted the engine's hit
  int64_t refused = 0;      // requests that fit into no pool
  int64_t preempted = 0;
  int64_t batches = 0;  // published by all engines
  // Batches that the index did not have at the end of the run. The batches of an ended engine do
  // not count.
  int64_t batches_left = 0;
  double seconds = 0;              // virtual time of the run
  std::vector<int64_t> by_engine;  // requests routed to each engine
  // Share of prompt tokens that were reused or loaded, in each tenth of the first admissions.
  std::vector<double> reuse_over_time;

  double mean_first_token_s() const;
  double first_token_quantile_s(double q) const;
  double prediction_error_quantile(double q) const;  // 0 without predictions
};

// Everything that the runs of one slice share. Const during the runs.
struct SliceSetup {
  const SimModel& model;  // only its times and load rate are read; `cache` has the groups
  const Slice& slice;
  const Prompts& prompts;
  CacheConfig cache;
  double time_scale = 1;              // factor of the arrival times of open-loop requests
  int64_t max_batched_tokens = 8192;  // see SimEngineConfig
};

// Returns the factor of the arrival times with which the slice has the load Workload::load. Returns
// 1 for a workload without a load, and for a closed-loop slice.
double TimeScale(const Workload& workload, const Slice& slice, const SimModel& model,
                 int64_t engines);

// Error: the options do not fit the model.
Result<RunResult> RunFleet(const SliceSetup& setup, const FleetOptions& options,
                           const RuleChoice& rule, IndexKind index);

}  // namespace kvcast::simulate
