// RouterReplay: a recorded run's events into the prefix index, every probe compared with what the
// engine's own lookup said.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/conformance/router/key_source.h"
#include "apps/conformance/router/policy_index.h"
#include "apps/conformance/scenario/scenario.h"
#include "apps/conformance/scenario/scenario_file.h"
#include "apps/conformance/scenario/scenario_prompts.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::tools {

// The engine's configuration as it would be registered with a router.
Result<WorkerConfig> RegistrationOf(const ScenarioConfig& config);
// The same for an engine whose requests are known, some of which may ask for hit reports.
Result<WorkerConfig> RegistrationOf(const Scenario& scenario);

// How far promises were from what the engine's own lookup said.
struct PromiseError {
  uint64_t probes = 0;
  uint64_t exact = 0;
  uint64_t over_tokens = 0;   // promised and not there, summed over the probes
  uint64_t under_tokens = 0;  // there and not promised
  uint64_t over_probes = 0;

  void Add(const PromiseError& other);
};

class RouterReplay {
 public:
  // Told the outcome of every check; `what` describes it if it differs.
  using Check = std::function<void(bool equal, const std::string& what)>;

  // `registration`: what the router is told of the engine, apart from the hash unit that `config`
  // gives.
  static Result<RouterReplay> Create(const ScenarioConfig& config, const WorkerConfig& registration,
                                     Check check);
  // The same with `index` instead of an exact one.
  static Result<RouterReplay> Create(const ScenarioConfig& config,
                                     std::unique_ptr<PolicyIndex> index, Check check);

  // Applies the step's events, then compares its probes: hit, replay, and by engine hash what each
  // group could serve by itself.
  void RunStep(const ScenarioStep& step);
  // The index must hold exactly the blocks that the engine held at the end.
  void CheckFinal(const ScenarioFinal& recorded);

  IndexCounters counters() const { return index_->counters(); }
  const PromiseError& error() const { return error_; }

 private:
  RouterReplay(const ScenarioConfig& config, KeySource keys, std::unique_ptr<PolicyIndex> index,
               Check check);
  void RunProbe(int64_t step, const ScenarioProbe& probe);

  int64_t unit_;
  KeySource keys_;
  Check check_;
  std::unique_ptr<PolicyIndex> index_;
  PromiseError error_;
  ScenarioPrompts prompts_;
};

}  // namespace kvcast::tools
