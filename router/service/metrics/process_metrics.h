// The build and the process on the metrics page, with the names that Prometheus clients use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace kvcast::router {

// Adds kvcast_build_info and the process_ metrics. If the system does not provide a value, the
// metric is left out.
void AddProcessFamilies(std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
