// StepTime: the duration of one model step of a simulated engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kvcast/router/prefill_time.h"

namespace kvcast::tools {

struct StepTime {
  double base_s = 0.008;  // of every step: overhead, and one read of the weights
  PrefillTime prefill;
  double decode_token_s = 0.0001;  // per decoded token
  // Per token of context that a decoded token reads, summed over all full-attention layers.
  double decode_context_s = 0;
  // Factor of all times; above 1 for a slow machine.
  double slowdown = 1;
};

}  // namespace kvcast::tools
