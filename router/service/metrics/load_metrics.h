// The metrics of the rates at which workers load blocks from lower tiers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "router/service/metrics/metrics.h"

namespace kvcast::router {

// All metrics have the labels worker and tier (CPU, STORAGE). kvcast_load_rate_bytes_per_second
// also has the label source (configured, measured). kvcast_load_reports_total also has the label
// result (LoadReportName).
void AddLoadRateFamilies(const std::vector<WorkerMetrics>& workers,
                         std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
