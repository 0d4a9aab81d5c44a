// The metrics of a worker's diagnosis and reuse.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "router/service/api/metrics.h"

namespace kvcast::router {

void AddReuseFamilies(const std::vector<WorkerMetrics>& workers,
                      std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
