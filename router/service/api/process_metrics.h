// The build and the process on the metrics page, with the names that Prometheus clients use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace kvcast::router {

// Adds kvcast_build_info and the process_ metrics. A value that the system does not give is left
// out.
void AddProcessFamilies(std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
