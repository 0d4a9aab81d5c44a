// RelayedRouter: the copy of an engine's state that a router behind a relay holds, and the checks
// of this copy. The copy must equal the engine's state at the position that the relay published.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/router/prefix_index.h"
#include "router/replica/replica.h"
#include "src/stream/follow/source.h"
#include "src/stream_sim/publisher.h"
#include "src/stream_sim/relay.h"
#include "src/stream_sim/violation.h"

namespace kvcast::sim {

class RelayedRouter final : public ReplicaSink {
 public:
  // Only the checks read `publisher`. All reference arguments must outlive the router.
  RelayedRouter(const stream::SourceLimits& limits, const SimPublisher& publisher,
                const SimRelay& relay, Record& record);

  // The process of the router ends, and a new one starts.
  void Restart(int64_t now_ms);
  // The source gets a message from the relay, or a connection to the relay.
  void NoteHeard(int64_t now_ms) { heard_ms_ = now_ms; }
  // Must be called after every call into the source.
  void Check(const stream::Source& source, int64_t now_ms);
  // Must be called after a time without faults. When this time began, the relay was at `position`
  // of `epoch`. A synced source must have reached this position, or a later epoch of the relay.
  void CheckDetected(const stream::Source& source, int64_t now_ms, uint64_t epoch,
                     const EnginePosition& position);
  // Checks the source after a long time without faults: its state must fit the state of the relay's
  // source.
  void CheckConverged(const stream::Source& source, int64_t now_ms);

 private:
  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override;
  void Reset(ResetReason reason) override;
  bool TakesSnapshots() const override { return true; }
  void BeginSnapshot() override { replica_->BeginSnapshot(); }
  bool AddToSnapshot(std::span<const uint8_t> payload) override {
    return replica_->AddToSnapshot(payload);
  }
  bool CommitSnapshot(const PublisherStatus& status) override;
  void DropSnapshot() override { replica_->DropSnapshot(); }
  DigestVerdict Compare(const PublisherStatus& status) override;
  bool Repairs() const override { return true; }
  uint64_t DifferingBuckets(const PublisherStatus& status) override {
    return replica_->DifferingBuckets(status);
  }
  void BeginRepair(uint64_t buckets) override { replica_->BeginRepair(buckets); }
  // The state of the engine at `position`.
  HoldingsSum StateAt(const EnginePosition& position) const;
  HoldingsSum held() const { return SumOf(index_.Digests(kWorker)); }

  static constexpr WorkerId kWorker{0};
  const stream::SourceLimits limits_;
  const SimPublisher& publisher_;
  const SimRelay& relay_;
  Record& record_;
  PrefixIndex index_;
  std::optional<router::Replica> replica_;
  EventBatch batch_;
  EnginePosition position_;  // of the held state
  int64_t heard_ms_ = 0;
  SourceState last_state_ = SourceState::kConnecting;
};

}  // namespace kvcast::sim
