// ScenarioScheduler: computes how many tokens of a request the recorded engine schedules in a step.
//
// The recorded operations contain this number too. A replay compares the two numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "apps/conformance/scenario/scenario.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/engine/prefill_split.h"

namespace kvcast::tools {

class ScenarioScheduler {
 public:
  // `cache` must be validated.
  ScenarioScheduler(const ScenarioConfig& config, const CacheConfig& cache);

  void BeginStep() { budget_ = max_batched_tokens_; }
  // Returns the number of new tokens of the allocation `op`. If the recorded allocation succeeded,
  // subtracts the scheduled tokens from the step's budget. `waiting`: the request has no blocks
  // yet.
  int64_t NewTokens(const CacheRequest& request, const ScenarioOp& op, bool waiting);
  void OnOutput(const ScenarioOp& op);

 private:
  const PrefillSplit split_;
  const int64_t max_batched_tokens_;
  const int64_t long_prefill_tokens_;
  const int64_t draft_tokens_;
  const int64_t max_model_len_;
  int64_t budget_ = 0;
  // Tokens that a running step will sample, by request (asynchronous scheduling).
  std::map<std::string, int64_t> to_sample_;
};

}  // namespace kvcast::tools
