// Routing policies compared on the demo's trace and caches, in virtual time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/demo/demo_options.h"
#include "apps/simulate/fleet_simulation.h"
#include "apps/support/trace.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

// One selection rule with one index.
struct PolicyResult {
  std::string rule;   // as in `kvcast simulate --rules`
  std::string index;  // as in `kvcast simulate --index`
  std::string title;  // the rule in words
  // False: the rule chooses without the index. `run` then has the predictions of the index for the
  // engine that the rule chose.
  bool reads_index = true;
  simulate::RunResult run;

  // Prompt tokens that the engines neither reused nor loaded at the first admission of each
  // request. The requests of the warm-up do not count.
  int64_t computed_tokens() const {
    return run.prompt_tokens - run.reused_tokens - run.loaded_tokens;
  }
};

struct PolicyComparison {
  std::vector<PolicyResult> policies;
  std::string left_out;  // why there is no comparison; empty if `policies` is not empty

  // True: at each checked admission of each run, the index predicted the hit of the engine's own
  // lookup. False if a run has no checked admission. True if `policies` is empty.
  bool exact() const;
};

// Runs each policy with the arrival times of the trace. Equal arguments give equal results. The
// load rate is options.cache.load_rate, or the default of SimEngineConfig: never a measured rate.
// Error: the options give no valid cache, or a run fails.
Result<PolicyComparison> ComparePolicies(const DemoOptions& options,
                                         const std::vector<TraceRequest>& trace);

}  // namespace kvcast::tools
