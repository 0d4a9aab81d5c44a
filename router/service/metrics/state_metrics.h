// The metrics of the saved state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "router/service/state/router_state.h"

namespace kvcast::router {

void AddStateFamilies(const StateReport& report, std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
