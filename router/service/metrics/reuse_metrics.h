// The metrics of each worker's reuse: the diagnosis of missing reuse (see ReuseDiagnosis), and the
// tokens that the router predicted and the worker reused.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "router/service/metrics/metrics.h"

namespace kvcast::router {

void AddReuseFamilies(const std::vector<WorkerMetrics>& workers,
                      std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
