// EventAggregator: finds the events that all tensor-parallel workers of one engine have reported.
// It follows the rules of vLLM's KVEventAggregator.
//
// Each worker of a tensor-parallel group holds a slice of each block, and each worker reports the
// same transfer. A block is present only if all workers have their slice. An event is therefore
// common if the number of times that it was added is equal to the number of workers.
//
// Known limitation, which vLLM has too: the aggregator compares counts only.
// - If only some workers send an event, the event never becomes common. An example is a cache that
//   stores each shard under a separate key.
// - If one worker sends an event twice, the aggregator counts the second event as an event of
//   another worker.
//
// Uncommon() returns all events whose count differs from the number of workers.
//
// Movable, not copyable. Thread-compatible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/event_identity.h"
#include "kvcast/core/status.h"

namespace kvcast {

// An event and the number of times that it was added.
struct CountedEvent {
  Event event;
  int64_t count = 0;

  friend bool operator==(const CountedEvent&, const CountedEvent&) = default;
};

class EventAggregator {
 public:
  // `num_workers`: the number of times that an event must be added to become common. Error:
  // kInvalidArgument if `num_workers` is not positive.
  static Result<EventAggregator> Create(int64_t num_workers);
  EventAggregator(EventAggregator&&) = default;
  EventAggregator& operator=(EventAggregator&&) = default;

  int64_t num_workers() const { return num_workers_; }

  // Adds 1 to the count of each event. To merge another aggregator, add the result of its All().
  void Add(std::span<const Event> events);

  // All result lists are in the order in which the events were first added. Common() returns each
  // event that was added exactly num_workers() times; the result contains it once.
  std::vector<Event> Common() const;
  // Every event. An event that was added n times occurs n times.
  std::vector<Event> All() const;
  // The events that Common() omits, with their counts. A count below num_workers() means that some
  // workers did not send the event. A count above num_workers() means that some workers sent the
  // event more than once.
  std::vector<CountedEvent> Uncommon() const;

  // Removes all events. The number of workers does not change.
  void Clear();

  // Adds `count` to the number of workers. Error: kInvalidArgument, without any change, if `count`
  // is not positive, or if the sum is above 2^63 - 1.
  Status IncrementWorkers(int64_t count = 1);
  // Sets the number of workers to 1.
  void ResetWorkers() { num_workers_ = 1; }

 private:
  using Counts = std::unordered_map<Event, int64_t, EventHash>;

  explicit EventAggregator(int64_t num_workers) : num_workers_(num_workers) {}

  int64_t num_workers_;
  Counts counts_;
  std::vector<const Counts::value_type*> order_;  // the addresses of elements of counts_ are stable
};

}  // namespace kvcast
