// PublisherCore: what a publisher does with batches, events and silence: numbers, refused batches,
// pending events, heartbeats, the ring and the state for KVX1. No socket, no thread, and the clock
// is given: Publisher and the simulation run it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "src/base/mutex.h"
#include "src/base/steady_us.h"
#include "src/stream/publish/pending_events.h"
#include "src/stream/publish/publisher_state.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

// Publish, PublishPayload, Add and Flush: one thread at a time. Tick: one thread at a time, which
// may be another one. Everything else: any thread.
class PublisherCore {
 public:
  // `now_us`: monotonic microseconds, called on the threads of all of the above; empty: SteadyUs.
  PublisherCore(const PublisherConfig& config, std::function<int64_t()> now_us);

  // Before the first batch: the state for KVX1 answers is kept from here on.
  void KeepState(const Epoch& epoch);

  // As those of Publisher. Inline, because code that is not in the cache is what Publish costs
  // most.
  Result<Seq> Publish(EventBatch&& batch) {
    if (has_pending_.load(std::memory_order_acquire)) return PublishPending(std::move(batch));
    return PublishBatch(std::move(batch));
  }
  void Add(std::vector<Event> events, double ts);
  Status Flush();
  Result<Seq> PublishPayload(std::span<const uint8_t> payload);

  // Publishes pending events that are due, lets the state catch up, and publishes a heartbeat after
  // `heartbeat_ms` without a batch. To be called every kTickMs.
  void Tick();
  static constexpr int64_t kTickMs = 20;
  bool needs_ticks() const {
    return state_ != nullptr || config_.heartbeat_ms > 0 || config_.flush_ms > 0;
  }

  ReplayRing& ring() { return ring_; }
  const ReplayRing& ring() const { return ring_; }
  PublisherState* state() { return state_.get(); }
  int64_t NowUs() const { return now_us_ ? now_us_() : SteadyUs(); }
  uint64_t encode_errors() const { return encode_errors_; }
  uint64_t heartbeats() const { return heartbeats_; }

 private:
  Result<Seq> PublishBatch(EventBatch&& batch);
  // Behind the events that wait, in one batch.
  Result<Seq> PublishPending(EventBatch&& batch);
  // No subscriber can get this number; the state keeps the batch's events where it can.
  void Refuse(const EventBatch* batch);
  Status FlushLocked() KV_REQUIRES(pending_mutex_);
  void FlushIfDue();
  void NoteTime(double ts);
  void PublishHeartbeat();

  // The members that each Publish uses lie together, because the caches of the engine's thread are
  // cold.
  const std::function<int64_t()> now_us_;
  // Written under pending_mutex_: set before Add returns, cleared after the pending events have
  // their number. A Publish that reads false needs no lock.
  std::atomic<bool> has_pending_{false};
  // The batches' time less the clock's, in seconds; NaN before the first batch.
  std::atomic<double> clock_offset_s_{std::numeric_limits<double>::quiet_NaN()};
  const int64_t data_parallel_rank_;
  ReplayRing ring_;

  const PublisherConfig config_;
  std::unique_ptr<PublisherState> state_;
  std::atomic<uint64_t> encode_errors_{0};
  std::atomic<uint64_t> heartbeats_{0};

  // Held while pending events get their number: no batch that is published later comes before it.
  Mutex pending_mutex_;
  PendingEvents pending_ KV_GUARDED_BY(pending_mutex_);

  // Of Tick: the ring's next number, and when that was first seen.
  uint64_t ticked_seq_ = 0;
  int64_t silent_since_us_;
};

}  // namespace kvcast::stream
