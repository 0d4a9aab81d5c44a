// The metrics that are one number, of a worker or of the service as a whole: name, help and value.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_type.h>

#include <cstdint>
#include <span>

#include "router/service/api/metrics.h"

namespace kvcast::router {

struct WorkerMetric {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  uint64_t (*read)(const WorkerMetrics&);
};

struct ServiceMetric {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  uint64_t (*read)(const ServiceMetrics&);
};

std::span<const ServiceMetric> ServiceMetricTable();

// The worker's stream, from the connection to the next sequence number.
std::span<const WorkerMetric> StreamMetricTable();
// The decoded events, the detection of the hash scheme, and the index.
std::span<const WorkerMetric> EventMetricTable();
// The names of blocks.
std::span<const WorkerMetric> NamingMetricTable();
// The requests that the router sent to the worker.
std::span<const WorkerMetric> LoadMetricTable();

}  // namespace kvcast::router
