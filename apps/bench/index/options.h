// Derives the measured fleets from the options of a command.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "apps/bench/index/churn.h"
#include "apps/bench/index/commands.h"

namespace kvcast::bench {

// Returns one fleet with options.holders holders. If options.holders is 0, returns one fleet for
// each number in `holders`; the numbers must increase. All numbers of at least options.workers give
// one common fleet, which has options.workers holders.
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
