// The metrics with one number per worker, and the metrics with one number per service. Each entry
// has the name, the help and the value of a metric.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_type.h>

#include <cstdint>
#include <span>

#include "router/service/metrics/metrics.h"

namespace kvcast::router {

struct WorkerMetric {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  uint64_t (*read)(const WorkerMetrics&);
  double unit = 1;  // value of the metric = result of `read` * unit
};

struct ServiceMetric {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  double (*read)(const ServiceMetrics&);
};

std::span<const ServiceMetric> ServiceMetricTable();

// Metrics of the worker's stream.
std::span<const WorkerMetric> StreamMetricTable();
// Metrics of the decoded events, of the detection of the hash scheme, and of the index.
std::span<const WorkerMetric> EventMetricTable();
// Metrics of the names of blocks.
std::span<const WorkerMetric> NamingMetricTable();
// Metrics of the requests that the router sent to the worker.
std::span<const WorkerMetric> LoadMetricTable();

}  // namespace kvcast::router
