// The metrics of the workers whose events are in a durable log (endpoint nats:MODEL/WORKER).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "router/service/metrics/metrics.h"

namespace kvcast::router {

// Adds no families if no worker has a log.
void AddLogFamilies(const std::vector<WorkerMetrics>& workers,
                    std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
