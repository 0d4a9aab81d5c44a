// PublisherCore: the logic of a publisher: sequence numbers, refused batches, pending events,
// heartbeats, the ring and the state for KVX1 (see publisher_state.h). It has no socket and no
// thread, and the clock is an argument. Publisher and the simulation use the same core.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/stream/publish/pending_events.h"
#include "src/stream/publish/publisher_state.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

// Publish, PublishPayload, Add and Flush must be called by one thread at a time. Tick must be
// called by one thread at a time; it may run at the same time as these four. All other methods are
// thread-safe.
class PublisherCore {
 public:
  // `now_us`: monotonic microseconds. It is called on all threads that call methods of this class.
  // Empty: SteadyUs.
  PublisherCore(const PublisherConfig& config, std::function<int64_t()> now_us);

  // Starts to keep the state for KVX1 answers. Must be called before the first batch.
  void KeepState(const Epoch& epoch);
  // As KeepState, but begins with this state. Errors: those of PublisherState::Restore.
  Status KeepState(const Epoch& epoch, const PublishedState& resume);

  // These methods are the methods of Publisher with the same names. Publish is inline, because
  // instruction-cache misses are the largest cost of Publish.
  Result<Seq> Publish(EventBatch&& batch) {
    if (has_pending_.load(std::memory_order_acquire)) return PublishPending(std::move(batch));
    return PublishBatch(std::move(batch));
  }
  void Add(std::vector<Event> events, double ts);
  Status Flush();
  Result<Seq> PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts = {});
  void SetSilent(bool silent) { SpeakUntil(silent ? kSilentAtOnce : kNeverSilent); }
  // Returns the previous time.
  int64_t SpeakUntil(int64_t time_us) { return speaks_until_us_.exchange(time_us); }
  static constexpr int64_t kSilentAtOnce = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kNeverSilent = std::numeric_limits<int64_t>::max();
  bool silent() const {
    const int64_t until_us = speaks_until_us_;
    return until_us != kNeverSilent && NowUs() >= until_us;
  }

  // Publishes pending events that are due, calls PublisherState::CatchUp, and publishes a heartbeat
  // after `heartbeat_ms` without a batch. Must be called every kTickMs.
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
  // Removes the content of prompts if the config says so, and appends the batch to the ring.
  Result<Seq> AppendBatch(EventBatch&& batch);
  Result<Seq> AppendPayload(std::span<const uint8_t> payload, std::optional<double> ts);
  // Publishes the pending events and, after them, the events of `batch`, in one batch.
  Result<Seq> PublishPending(EventBatch&& batch);
  // Uses a sequence number that no subscriber can receive. If there is a state, the state gets the
  // part of the batch that it needs (residency::MirroredPart), provided that this part can be
  // encoded. nullptr: the events are not known.
  void Refuse(const EventBatch* batch);
  Status FlushLocked() KV_REQUIRES(pending_mutex_);
  void FlushIfDue();
  void NoteTime(double ts);
  void PublishHeartbeat();

  // The members that each Publish uses are adjacent in memory, because the caches of the engine's
  // thread are cold.
  const std::function<int64_t()> now_us_;
  // Written under pending_mutex_. Add sets the flag before Add returns. The flag is cleared after
  // the pending events have their sequence number. A Publish that reads false needs no lock.
  std::atomic<bool> has_pending_{false};
  // For the latest batch that has a time stamp: this time stamp minus the clock at its publication,
  // in seconds. NaN before the first such batch.
  std::atomic<double> clock_offset_s_{std::numeric_limits<double>::quiet_NaN()};
  const int64_t data_parallel_rank_;
  ReplayRing ring_;

  const PublisherConfig config_;
  std::unique_ptr<PublisherState> state_;
  std::atomic<uint64_t> encode_errors_{0};
  std::atomic<uint64_t> heartbeats_{0};
  std::atomic<int64_t> speaks_until_us_;

  // Held while the pending events get their sequence number, so that no later batch gets a lower
  // number.
  Mutex pending_mutex_;
  PendingEvents pending_ KV_GUARDED_BY(pending_mutex_);
  EventBatch decoded_ KV_GUARDED_BY(pending_mutex_);  // keeps its memory between payloads

  // Used by Tick only: the ring's next sequence number, and the time of the first tick that saw
  // this number.
  uint64_t ticked_seq_ = 0;
  int64_t idle_since_us_;
};

}  // namespace kvcast::stream
