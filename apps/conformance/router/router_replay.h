// RouterReplay: applies a recorded run's events to the prefix index. Compares every probe with the
// engine's own lookup.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/conformance/router/hash_source.h"
#include "apps/conformance/router/policy_index.h"
#include "apps/conformance/scenario/scenario.h"
#include "apps/conformance/scenario/scenario_file.h"
#include "apps/conformance/scenario/scenario_prompts.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::tools {

// Returns the engine's configuration as a registration with a router.
Result<WorkerConfig> RegistrationOf(const ScenarioConfig& config);
// As above, and the registration also states whether the engine reports hits.
Result<WorkerConfig> RegistrationOf(const Scenario& scenario);

// The difference between the predictions and the engine's own lookups.
struct PromiseError {
  uint64_t probes = 0;
  uint64_t exact = 0;
  uint64_t over_tokens = 0;   // predicted tokens that the engine did not have, over all probes
  uint64_t under_tokens = 0;  // tokens of the engine that were not predicted, over all probes
  uint64_t over_probes = 0;   // probes for which too many tokens were predicted

  void Add(const PromiseError& other);
};

class RouterReplay {
 public:
  // Called with the result of every check. If the check failed, `difference` describes the
  // difference.
  using Check = std::function<void(bool equal, const std::string& difference)>;

  // `registration`: the configured properties of the engine. The hash block size is taken from
  // `config`.
  static Result<RouterReplay> Create(const ScenarioConfig& config, const WorkerConfig& registration,
                                     Check check);
  // As above, with `index` instead of an exact index.
  static Result<RouterReplay> Create(const ScenarioConfig& config,
                                     std::unique_ptr<PolicyIndex> index, Check check);

  // Applies the step's events. Then compares the hit and the replay of each probe. Also compares
  // the tokens that each group could serve alone, if these tokens are recorded and the index knows
  // all groups.
  void RunStep(const ScenarioStep& step);
  // Checks that the index holds as many blocks as the engine held at the end.
  void CheckFinal(const ScenarioFinal& recorded);

  IndexCounters counters() const { return index_->counters(); }
  const PromiseError& error() const { return error_; }

 private:
  RouterReplay(const ScenarioConfig& config, HashSource hashes, std::unique_ptr<PolicyIndex> index,
               Check check);
  void RunProbe(int64_t step, const ScenarioProbe& probe);

  int64_t hash_block_size_;
  HashSource hashes_;
  Check check_;
  std::unique_ptr<PolicyIndex> index_;
  PromiseError error_;
  ScenarioPrompts prompts_;
};

}  // namespace kvcast::tools
