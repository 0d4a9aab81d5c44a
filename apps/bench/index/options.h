// From the options of a command to what is measured.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "apps/bench/index/churn.h"
#include "apps/bench/index/commands.h"

namespace kvcast::bench {

// The fleet with the number of holders that was asked for, or else one with each of `holders`; at
// most as many as there are workers.
inline std::vector<ChurnConfig> FleetCases(const FleetOptions& options,
                                           std::initializer_list<int64_t> holders) {
  std::vector<ChurnConfig> cases;
  for (const int64_t wanted : holders) {
    const int64_t count = std::min(options.holders > 0 ? options.holders : wanted, options.workers);
    if (!cases.empty() && cases.back().holders == count) break;
    cases.push_back({.residencies = options.residencies,
                     .workers = options.workers,
                     .groups = options.groups,
                     .holders = count,
                     .blocks = options.blocks});
  }
  return cases;
}

}  // namespace kvcast::bench
