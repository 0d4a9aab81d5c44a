// Samples of a metrics page.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/stream/subscriber.h"

namespace kvcast::router {

inline constexpr size_t kSourceStates = static_cast<size_t>(SourceState::kQuarantined) + 1;

using Labels = std::vector<prometheus::ClientMetric::Label>;

// `type`: counter or gauge.
inline prometheus::ClientMetric NumberSample(prometheus::MetricType type, Labels labels,
                                             double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

// Adds a family with one sample without labels. `type`: counter or gauge.
inline void AddValue(const char* name, const char* help, prometheus::MetricType type, double value,
                     std::vector<prometheus::MetricFamily>& families) {
  families.push_back({name, help, type, {NumberSample(type, {}, value)}});
}

// Adds a gauge for each of the states 0 to count - 1: 1 for the current state, 0 for the others.
// All states exist from the start, so that an alert never names a series that does not exist yet.
template <typename State>
void AddStates(size_t count, State current, std::string_view (*name_of)(State),
               const Labels& labels, prometheus::MetricFamily& family) {
  for (size_t i = 0; i < count; ++i) {
    const auto state = static_cast<State>(i);
    Labels all = labels;
    all.push_back({"state", std::string(name_of(state))});
    const double value = state == current ? 1 : 0;
    family.metric.push_back(NumberSample(prometheus::MetricType::Gauge, std::move(all), value));
  }
}

}  // namespace kvcast::router
