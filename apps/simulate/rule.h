// A selection rule: chooses the engine that serves a request. The table of all rules is in
// rule_table.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/simulate/load_book.h"
#include "apps/simulate/prompts.h"
#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/route/query.h"

namespace kvcast::simulate {

// The data of one engine that a rule gets. The hit tokens come from the index of the run.
struct RuleEngine {
  size_t engine = 0;                // constant for the whole run
  int64_t hit_tokens = 0;           // on the GPU
  int64_t hit_with_cpu_tokens = 0;  // with loads from host memory
  EngineLoad load;
  int64_t blocks_with_request = 0;  // load.blocks, if the engine also served this request
  int64_t waiting = 0;              // requests in the engine's own queue
  // Share of the engine's blocks that its requests used at the end of its latest complete step.
  double cache_usage = 0;
};

struct RuleInput {
  size_t request = 0;
  int64_t session = 0;
  int64_t prompt_tokens = 0;
  int64_t block_tokens = 0;  // tokens of a hash unit
  std::span<const PrefixNumber> prefixes;
  std::span<const RuleEngine> engines;  // not empty
  // One random number in [0, 1) per decision, for ties. All rules get the same numbers.
  double draw = 0;
  double now_s = 0;
  // The index's own answers, in the order of `engines`, and the names of the prompt's prefixes.
  // With IndexKind::kApproximate, a WorkerMatch has only the worker and the three token counts, and
  // these counts are equal.
  std::span<const WorkerMatch> matches;
  router::SharedPrefixes names;
};

// Returns the number of prompt tokens that are not on the engine's GPU.
inline double Uncached(const RuleInput& input, const RuleEngine& engine) {
  return static_cast<double>(std::max<int64_t>(input.prompt_tokens - engine.hit_tokens, 0));
}

// Properties of the fleet that a rule may use.
struct RuleFleet {
  size_t engines = 0;
  int64_t block_tokens = 0;
  double prefill_tokens_per_s = 0;  // without attention
  double load_tokens_per_s = 0;     // from host memory
  int64_t cache_tokens = 0;         // of one engine
};

class Rule {
 public:
  virtual ~Rule() = default;
  // Returns a position in input.engines.
  virtual size_t Choose(const RuleInput& input) = 0;
  // Admitted, FirstToken, Finished: reports of the engines about a request. Applied: the index has
  // applied a batch of the engine. Removed: the engine has ended, and the index has dropped its
  // blocks. The default implementations do nothing.
  virtual void Admitted(size_t /*request*/, int64_t /*hit_tokens*/, double /*now_s*/) {}
  virtual void FirstToken(size_t /*request*/, double /*now_s*/) {}
  virtual void Finished(size_t /*request*/, double /*now_s*/) {}
  virtual void Applied(size_t /*engine*/, const EventBatch& /*batch*/) {}
  virtual void Removed(size_t /*engine*/) {}
  // The predicted time to the first token of the latest choice, in seconds. nullopt: the rule
  // predicts nothing.
  virtual std::optional<double> PredictedFirstToken() const { return std::nullopt; }
  // The hint of the latest choice; see CacheRequest::keep_prefix_tokens.
  virtual int64_t KeepPrefixTokens() const { return 0; }
  // Another hint of the latest choice; see CacheRequest::will_not_return_after.
  virtual std::optional<int64_t> WillNotReturnAfter() const { return std::nullopt; }
};

using RuleParameters = std::map<std::string, double>;

struct RuleInfo {
  std::string name;
  std::string description;
  std::string source;
  RuleParameters defaults;
  std::unique_ptr<Rule> (*make)(const RuleParameters& parameters, const RuleFleet& fleet);
};

// Returns the position of the engine with the lowest cost. The draw decides between equal costs.
// REQUIRES: `costs` is not empty, and no cost is NaN.
size_t Cheapest(std::span<const double> costs, double draw);

}  // namespace kvcast::simulate
