// LogBridge: publishes the source of a durable log at local endpoints, for a subscriber of the same
// process. The subscriber follows the bridge as any publisher with KVX1. See log_threads.h.
//
// The first published epoch and its sequence numbers are those of the log. So a subscriber with a
// saved state from another bridge of the log can go on from that state. If a restarted relay goes
// on with the same state in a new epoch, the bridge keeps the epoch and the numbers that it
// publishes. If the bridge replaces its state, the bridge publishes a new epoch of its own, because
// its subscribers may have a wrong state.
//
// Every LogWriter::kAnnounceMs, the relay announces the number of its latest batch, and the digests
// of its state after that batch. The bridge reaches an announcement when it has published that
// batch. If the bridge has reached no announcement of the last kAliveMs, it is silent
// (Publisher::SpeakUntil), and sends no batches. So a subscriber becomes kStale if the log cannot
// be read, if the relay or its engine has ended, or if messages do not arrive. The silence also
// begins while a call of the log blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kvcast/stream/publisher.h"
#include "src/base/mutex.h"
#include "src/event_log/bridge_status.h"
#include "src/event_log/event_log.h"
#include "src/event_log/log_replica.h"

namespace kvcast::event_log {

struct LogBridgeConfig {
  // The next six options are options of the publisher. The publisher has no limits per client.
  std::string endpoint;
  std::string replay_endpoint;
  size_t ring_batches = 10000;
  size_t ring_bytes = 64u << 20;
  bool repeats_are_refreshes = false;
  uint64_t max_blocks = 1u << 24;
  std::function<int64_t()> now_ms;  // monotonic; also called on the publisher's threads
};

// One thread at a time may call Step. status() is thread-safe.
class LogBridge final : private ReplicaTarget {
 public:
  static constexpr int64_t kAliveMs = 2000;
  // If the end of the log was read and an announcement is not reached after this time, the log is
  // read again.
  static constexpr int64_t kStuckMs = 3000;

  // `log` must outlive the bridge.
  LogBridge(LogBridgeConfig config, EventLog& log);
  // Reads and publishes the next messages. Waits up to `wait_ms` for the first message. False: the
  // log cannot be read, or the pause after a rewind has not ended.
  bool Step(int64_t wait_ms);
  BridgeStatus status() const;

 private:
  struct Awaited {
    LogRecord record;
    std::optional<PublisherStatus> digests;
    int64_t arrived_ms = 0;  // the earliest time at which the announcement can have arrived
  };
  bool Equals(const PublisherStatus& status) override;
  bool Begin(RelayState state) override;
  bool LacksState() const override;
  bool Fits(const PublisherStatus& status) const override;
  void Add(std::span<const uint8_t> payload, const std::optional<EngineMark>& mark) override;
  void ReadAnnouncement();
  void CheckAwaited(uint64_t pending);
  bool Agrees() const;
  bool relay_is_alive() const;
  // Sets the time from which the publisher is silent.
  void UpdateSilence();
  void Rewind();
  void Note(BridgeState state, const std::string& error);

  const LogBridgeConfig config_;
  EventLog& log_;
  LogReplica replica_;
  std::unique_ptr<Publisher> publisher_;  // nullptr: no complete snapshot was read
  bool begun_ = false;                    // a Begin has succeeded
  std::string begin_error_;               // of the latest Begin
  uint64_t from_ = 1;                     // position of the next message
  int64_t now_ms_ = 0;                    // of the current Step
  int64_t resume_ms_ = 0;                 // the log is not read before this time
  uint64_t heard_ = 0;              // Announcement::count at the latest call of ReadAnnouncement
  int64_t heard_ms_;                // time of this call
  std::optional<Awaited> awaited_;  // the announcement that the bridge must reach
  // Since this time, the log has had no more messages, and the bridge has not reached awaited_.
  // nullopt: the log has more messages, or there is no awaited announcement.
  std::optional<int64_t> behind_since_ms_;
  std::optional<int64_t> alive_ms_;  // arrival of the latest announcement that was reached
  mutable Mutex mutex_;
  BridgeStatus status_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::event_log
