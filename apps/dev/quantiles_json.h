// Quantiles in the JSON reports of the benchmarks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/bench/service/bench_freshness.h"

namespace kvcast::tools {

// Returns {"p50", "p99", "p999", "max"}, in seconds.
nlohmann::json JsonOf(const Quantiles& quantiles);

}  // namespace kvcast::tools
