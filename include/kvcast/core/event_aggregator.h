// EventAggregator: what the tensor-parallel workers of one engine agree to have done.
//
// Every worker of a tensor-parallel group holds a slice of each block, so each of them reports the
// same transfer. A block is there only once all of them have it: the events in common are those
// that were added as often as there are workers. Rules of vLLM's KVEventAggregator.
//
// Known weakness, kept for the sake of equal answers: only the count decides. An event that some
// workers alone emit (caches whose shards are stored under keys of their own) never becomes common
// and would vanish; one that a worker repeats is counted as if another had sent it. Uncommon()
// shows both, so that nothing disappears unseen.
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

// An event and how often it was added.
struct CountedEvent {
  Event event;
  int64_t count = 0;

  friend bool operator==(const CountedEvent&, const CountedEvent&) = default;
};

class EventAggregator {
 public:
  // `num_workers`: how often an event must be added to be common. An error unless positive.
  static Result<EventAggregator> Create(int64_t num_workers);
  EventAggregator(EventAggregator&&) = default;
  EventAggregator& operator=(EventAggregator&&) = default;

  int64_t num_workers() const { return num_workers_; }

  // Counts each of the events once. To merge another aggregator, add its All().
  void Add(std::span<const Event> events);

  // All lists are in the order in which the events appeared first.
  // Events that were added exactly num_workers() times, each of them once.
  std::vector<Event> Common() const;
  // Every event as often as it was added.
  std::vector<Event> All() const;
  // Events that Common() leaves out. Below num_workers(): some workers did not send it; above: some
  // sent it more than once.
  std::vector<CountedEvent> Uncommon() const;

  // Forgets the events; the number of workers stays.
  void Clear();

  // More workers take part, or the same ones once more. An error, and no change, unless `count` is
  // positive and the sum fits 64 bits.
  Status IncrementWorkers(int64_t count = 1);
  // Back to one worker.
  void ResetWorkers() { num_workers_ = 1; }

 private:
  using Counts = std::unordered_map<Event, int64_t, EventHash>;

  explicit EventAggregator(int64_t num_workers) : num_workers_(num_workers) {}

  int64_t num_workers_;
  Counts counts_;
  std::vector<const Counts::value_type*> order_;  // elements of counts_ stay where they are
};

}  // namespace kvcast
