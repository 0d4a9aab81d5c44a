// The metrics of a worker's load rates.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "router/service/api/metrics.h"

namespace kvcast::router {

// Labels: worker, tier (CPU, STORAGE), and source (configured, measured) or result
// (LoadReportName).
void AddLoadRateFamilies(const std::vector<WorkerMetrics>& workers,
                         std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
