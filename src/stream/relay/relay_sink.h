// RelaySink: publishes the batches of a followed source again, in epochs of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kvcast/stream/stream_relay.h"
#include "src/base/mutex.h"
#include "src/stream/relay/relay_core.h"

namespace kvcast::stream {

// Thread-safe.
class RelaySink final : public ReplicaSink, private RelayOutput {
 public:
  // Opens the endpoints of the first epoch. Errors: those of Publisher::Create.
  static Result<std::shared_ptr<RelaySink>> Create(const PublisherConfig& config);

  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override;
  void Reset(ResetReason reason) override;
  // Must be called when the state of the source has changed.
  void NoteState(SourceState state);

  const std::string& endpoint() const { return config_.endpoint; }
  const std::string& replay_endpoint() const { return config_.replay_endpoint; }
  StreamRelayCounters counters() const;
  Status status() const;

 private:
  explicit RelaySink(PublisherConfig config) : config_(std::move(config)), core_(*this) {}
  Status Open() KV_REQUIRES(mutex_);
  // The core calls these functions while the caller of the core holds mutex_.
  bool BeginEpoch() override KV_REQUIRES(mutex_);
  void PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) override
      KV_REQUIRES(mutex_);
  void SetSilent(bool silent) override KV_REQUIRES(mutex_);

  PublisherConfig config_;  // from Create on with the bound endpoints; constant after Create
  mutable Mutex mutex_;
  CondVar pause_;                                               // never notified
  std::unique_ptr<Publisher> publisher_ KV_GUARDED_BY(mutex_);  // nullptr: see status_
  Status status_ KV_GUARDED_BY(mutex_);
  RelayCore core_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::stream
