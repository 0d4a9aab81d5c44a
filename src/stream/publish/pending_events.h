// PendingEvents: events that wait for the next batch. If no batch follows in time, the events get a
// batch of their own. The class reads no clock: times are arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::stream {

// Thread-compatible.
class PendingEvents {
 public:
  // `flush_ms` 0: never due.
  explicit PendingEvents(int64_t flush_ms) : flush_ms_(flush_ms) {}

  // `ts`: time stamp of the batch if the events get a batch of their own.
  void Add(std::vector<Event> events, double ts, int64_t now_ms) {
    if (events.empty()) return;
    if (events_.empty()) since_ms_ = now_ms;
    ts_ = ts;
    std::move(events.begin(), events.end(), std::back_inserter(events_));
  }
  bool empty() const { return events_.empty(); }
  bool Due(int64_t now_ms) const {
    return flush_ms_ > 0 && !empty() && now_ms - since_ms_ >= flush_ms_;
  }
  // Moves the pending events into `batch`, before the batch's own events.
  void MoveTo(EventBatch& batch) {
    std::move(batch.events.begin(), batch.events.end(), std::back_inserter(events_));
    batch.events = std::exchange(events_, {});
  }
  EventBatch Take() {
    EventBatch batch;
    batch.ts = ts_;
    batch.events = std::exchange(events_, {});
    return batch;
  }

 private:
  const int64_t flush_ms_;
  std::vector<Event> events_;
  double ts_ = 0;
  int64_t since_ms_ = 0;
};

}  // namespace kvcast::stream
