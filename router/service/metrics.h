// The metrics page of the router service, in Prometheus text format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kvcast/prefix_index.h"
#include "kvcast/subscriber.h"
#include "router/service/source.h"

namespace kvcast::router {

// All counters of one worker at one time.
struct WorkerMetrics {
  std::string name;
  SourceState state = SourceState::kConnecting;
  SourceStatus stream;
  SourceCounters wire;
  IndexCounters index;
};

struct ServiceMetrics {
  uint64_t queries = 0;
  uint64_t bad_queries = 0;
  std::vector<WorkerMetrics> workers;
};

// Names start with kvcast_, counters end in _total; the only labels are worker, state and reason.
std::string RenderMetrics(const ServiceMetrics& metrics);

}  // namespace kvcast::router
