// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/relayed_router.h"

#include <string>
#include <utility>

#include "kvcast/wire/wire.h"
#include "src/base/check.h"
#include "src/stream_sim/oracle.h"

namespace kvcast::sim {

RelayedRouter::RelayedRouter(const stream::SourceLimits& limits, const SimPublisher& publisher,
                             const SimRelay& relay, Record& record)
    : limits_(limits), publisher_(publisher), relay_(relay), record_(record) {
  WorkerConfig config;
  config.name = "behind the relay";
  config.digests = true;
  KV_CHECK(index_.AddWorker(kWorker, config).ok());
  replica_.emplace(kWorker, index_);
}

void RelayedRouter::Restart(int64_t now_ms) {
  index_.RestartWorker(kWorker);
  replica_.emplace(kWorker, index_);
  position_ = {};
  heard_ms_ = now_ms;
  last_state_ = SourceState::kConnecting;
}

BatchResult RelayedRouter::Apply(Seq seq, std::span<const uint8_t> payload) {
  DecodeCounts counts;
  if (!DecodeBatch(payload, WireLimits(), batch_, counts).ok()) {
    replica_->Reset(/*restart=*/false);
    return BatchResult::kUndecodable;
  }
  // A heartbeat of the relay is no batch of the engine.
  const std::optional<EnginePosition> position = relay_.record().Of(batch_.ts);
  if (!position && !batch_.events.empty()) {
    record_.Fail("Isolated", "a router behind a relay applies a batch that the relay has not sent");
  }
  if (position) {
    const bool same_life = position_.life == position->life || position_.life < 0;
    if (!same_life) record_.Fail("Fenced", "a router behind a relay mixes two lives of the engine");
    if (same_life && position->next_seq < position_.next_seq)
      record_.Fail("Ordered", "a router behind a relay applies a batch that it has passed");
    position_ = *position;
  }
  const uint64_t unknown = index_.counters(kWorker).unknown_removes;
  replica_->Apply(seq.value, batch_);
  const bool possible = index_.counters(kWorker).unknown_removes == unknown;
  return possible ? BatchResult::kApplied : BatchResult::kImpossible;
}

void RelayedRouter::Reset(ResetReason reason) {
  replica_->Reset(reason == ResetReason::kRestart);
  position_ = {};
  ++record_.reached["resets behind a relay: " + std::string(ResetReasonName(reason))];
}

bool RelayedRouter::CommitSnapshot(const PublisherStatus& status) {
  if (!replica_->CommitSnapshot(status)) return false;
  position_ = relay_.record().At(status.epoch.low, status.next_seq);
  if (held() != StateAt(position_))
    record_.Fail("Honest", "a snapshot of a relay differs from the oracle");
  ++record_.reached["snapshots of relays"];
  return true;
}

DigestVerdict RelayedRouter::Compare(const PublisherStatus& status) {
  const DigestVerdict verdict = replica_->Compare(status);
  if (verdict == DigestVerdict::kDiffers)
    record_.Fail("Honest", "the digests of a relay differ from those of the router behind it");
  return verdict;
}

HoldingsSum RelayedRouter::StateAt(const EnginePosition& position) const {
  if (position.life < 0) return {};
  return publisher_.oracle(position.life).sum(position.next_seq);
}

void RelayedRouter::Check(const stream::Source& source, int64_t now_ms) {
  const SourceStatus status = source.status(now_ms);
  if (status.state != last_state_) {
    last_state_ = status.state;
    ++record_.reached["state behind a relay: " + std::string(SourceStateName(status.state))];
  }
  if (status.state != SourceState::kSynced) return;
  if (held() != StateAt(position_)) {
    record_.Fail("Honest", "a router behind a relay is synced at " +
                               std::to_string(position_.next_seq) + " of life " +
                               std::to_string(position_.life) +
                               ", but its state differs from the oracle");
  }
  const auto saved_position = source.Position();
  if (saved_position && saved_position->epoch &&
      relay_.record().lacks_batches(saved_position->epoch->low, saved_position->next_seq))
    record_.Fail("Honest", "a router behind a relay is synced in an epoch that lacks batches");
  if (now_ms - heard_ms_ > limits_.stale_ms)
    record_.Fail("Detecting", "a router behind a relay is synced, but the relay is silent");
}

void RelayedRouter::CheckDetected(const stream::Source& source, int64_t now_ms, uint64_t epoch,
                                  const EnginePosition& position) {
  if (source.status(now_ms).state != SourceState::kSynced || position.life < 0) return;
  // A later epoch of the relay may have no batch of the engine yet.
  const bool later = position_.life < 0 ? relay_.record().epoch() > epoch
                                        : std::pair(position_.life, position_.next_seq) >=
                                              std::pair(position.life, position.next_seq);
  if (later) return;
  record_.Fail("Detecting", "a router behind a relay is synced at " +
                                std::to_string(position_.next_seq) + " of life " +
                                std::to_string(position_.life) + ", but the relay reached " +
                                std::to_string(position.next_seq) + " of life " +
                                std::to_string(position.life) + " long before");
}

void RelayedRouter::CheckConverged(const stream::Source& source, int64_t now_ms) {
  const SourceStatus status = source.status(now_ms);
  const std::string state(SourceStateName(status.state));
  const SourceState relay_state = relay_.source_state();
  ++record_.reached["relays at the end: " + std::string(SourceStateName(relay_state))];
  if (relay_state != SourceState::kSynced) {
    const bool fits = relay_state == SourceState::kCleared ? status.state == SourceState::kCleared
                                                           : status.state != SourceState::kSynced;
    if (!fits) {
      record_.Fail("Converging", "a router behind a relay is " + state + ", but the relay is " +
                                     std::string(SourceStateName(relay_state)));
    }
  } else if (status.state == SourceState::kCleared && !limits_.extension) {
    // Without snapshots, batches that have left the relay's ring stay lost.
    ++record_.reached["readers without KVX1 behind a relay that lost batches"];
  } else if (status.state != SourceState::kSynced) {
    record_.Fail("Converging", "a router behind a synced relay is still in state " + state + " (" +
                                   std::string(SourceReasonName(status.reason)) + ")");
  } else if (held() != StateAt(relay_.position())) {
    record_.Fail("Converging", "a router behind a relay is synced, but not at the relay's state");
  }
}

}  // namespace kvcast::sim
