// SPDX-License-Identifier: Apache-2.0
#include "kvcast/core/event_aggregator.h"

#include <string>

namespace kvcast {

Result<EventAggregator> EventAggregator::Create(int64_t num_workers) {
  if (num_workers > 0) return EventAggregator(num_workers);
  return Status(StatusCode::kInvalidArgument,
                "num_workers must be positive, is " + std::to_string(num_workers));
}

void EventAggregator::Add(std::span<const Event> events) {
  for (const Event& event : events) {
    const auto [entry, inserted] = counts_.try_emplace(event, 0);
    ++entry->second;
    if (inserted) order_.push_back(&*entry);
  }
}

std::vector<Event> EventAggregator::Common() const {
  std::vector<Event> common;
  for (const auto* entry : order_) {
    if (entry->second == num_workers_) common.push_back(entry->first);
  }
  return common;
}

std::vector<Event> EventAggregator::All() const {
  std::vector<Event> all;
  for (const auto* entry : order_) {
    all.insert(all.end(), static_cast<size_t>(entry->second), entry->first);
  }
  return all;
}

std::vector<CountedEvent> EventAggregator::Uncommon() const {
  std::vector<CountedEvent> uncommon;
  for (const auto* entry : order_) {
    if (entry->second != num_workers_) uncommon.push_back({entry->first, entry->second});
  }
  return uncommon;
}

void EventAggregator::Clear() {
  order_.clear();
  counts_.clear();
}

Status EventAggregator::IncrementWorkers(int64_t count) {
  if (count <= 0 || count > INT64_MAX - num_workers_) {
    return {StatusCode::kInvalidArgument,
            "workers to add must be positive, and the total at most 2^63 - 1; workers to add: " +
                std::to_string(count)};
  }
  num_workers_ += count;
  return {};
}

}  // namespace kvcast
