// RelaySink: publishes the batches of a followed source again, in epochs of its own, and lets a
// durable log read the current epoch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kvcast/stream/relay_history.h"
#include "kvcast/stream/stream_relay.h"
#include "src/base/mutex.h"
#include "src/stream/relay/relay_core.h"

namespace kvcast::stream {

// Thread-safe.
class RelaySink final : public ReplicaSink, public RelayHistory, private RelayOutput {
 public:
  // Opens the endpoints of the first epoch. Errors: those of Publisher::Create.
  static Result<std::shared_ptr<RelaySink>> Create(const PublisherConfig& config);
  // The first epoch begins with this state; see StreamRelayConfig::recovery.
  static Result<std::shared_ptr<RelaySink>> Create(PublisherConfig config,
                                                   const RelayRecovery& recovery);

  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override;
  void Reset(ResetReason reason) override;
  // Must be called when the state of the source has changed.
  void NoteState(SourceState state);

  const std::string& endpoint() const { return config_.endpoint; }
  const std::string& replay_endpoint() const { return config_.replay_endpoint; }
  StreamRelayCounters counters() const;
  Status status() const;

  std::optional<RelayView> view() override;
  std::optional<RelayBatches> Read(const Epoch& epoch, uint64_t start, size_t limit) override;
  std::optional<PublisherStatus> StatusOf(const Epoch& epoch) override;
  std::optional<RelaySnapshot> SnapshotOf(const Epoch& epoch) override;
  std::optional<RelayState> FirstStateOf(const Epoch& epoch) override;

 private:
  // The mark of the relay's batch `seq`.
  struct Mark {
    uint64_t seq = 0;
    EngineMark mark;
  };
  class Lease;

  explicit RelaySink(PublisherConfig config) : config_(std::move(config)), core_(*this) {}
  Status Open() KV_REQUIRES(mutex_);
  // The core calls these functions while the caller of the core holds mutex_.
  bool BeginEpoch() override KV_REQUIRES(mutex_);
  void PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) override
      KV_REQUIRES(mutex_);
  void SetSilent(bool silent) override KV_REQUIRES(mutex_);

  void NoteMark(uint64_t seq, const EngineMark& mark) KV_REQUIRES(mutex_);

  PublisherConfig config_;  // Create sets the bound endpoints; constant after Create
  mutable Mutex mutex_;
  CondVar pause_;  // BeginEpoch waits here between two tries to bind; never notified
  CondVar lease_ended_;
  std::unique_ptr<Publisher> publisher_ KV_GUARDED_BY(mutex_);  // nullptr: status_ has the error
  Epoch epoch_ KV_GUARDED_BY(mutex_);
  std::optional<RelayState> first_state_ KV_GUARDED_BY(mutex_);  // see FirstStateOf
  size_t leases_ KV_GUARDED_BY(mutex_) = 0;         // calls that use publisher_ without the lock
  bool ending_ KV_GUARDED_BY(mutex_) = false;       // the epoch ends when there are no leases
  std::deque<Mark> marks_ KV_GUARDED_BY(mutex_);    // of the latest batches of the engine
  uint64_t engine_next_ KV_GUARDED_BY(mutex_) = 0;  // EngineMark::next_seq of the current batch
  Status status_ KV_GUARDED_BY(mutex_);
  RelayCore core_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::stream
