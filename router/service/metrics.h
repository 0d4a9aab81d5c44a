// The metrics page of the router service, in Prometheus text format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kvcast/prefix_index.h"
#include "kvcast/scheme_detector.h"
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
  SchemeVerdict verdict;
  SchemeCounters scheme;
  TokenFeedStatus tokens;
};

struct ServiceMetrics {
  uint64_t queries = 0;
  uint64_t bad_queries = 0;
  std::vector<WorkerMetrics> workers;
};

// Names start with kvcast_, counters end in _total. Labels: worker, state and reason; the scheme
// that was found is the labels of an info metric.
std::string RenderMetrics(const ServiceMetrics& metrics);

}  // namespace kvcast::router
