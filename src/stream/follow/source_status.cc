// The functions of Source that describe its state.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/stream/follow/source.h"

namespace kvcast::stream {

SourceState Source::state() const {
  if (quarantine_.active()) return SourceState::kQuarantined;
  if (publisher_.proof.concerns_saved_state()) {
    return connection_.up() ? SourceState::kBootstrap : SourceState::kConnecting;
  }
  if (!connection_.up()) {
    return replica_.joined() ? SourceState::kStale : SourceState::kConnecting;
  }
  if (connection_.state() == LiveConnection::State::kSilent) return SourceState::kStale;
  const bool replacing = replica_.being_replaced() || request_.kind == Kind::kSnapshot;
  if (!replica_.joined() || (replacing && !replica_.applied())) return SourceState::kBootstrap;
  if (replacing || publisher_.proof.missing()) return SourceState::kSuspect;
  if (position_.has_hole()) {
    return replica_.contents() == ReplicaState::Contents::kCleared ? SourceState::kBootstrap
                                                                   : SourceState::kGap;
  }
  if (replica_.incomplete()) return SourceState::kCleared;
  if (request_.kind == Kind::kReplay && pacer_.cuts() > 0) return SourceState::kGap;
  return replica_.suspect() ? SourceState::kSuspect : SourceState::kSynced;
}

SourceReason Source::reason() const {
  switch (state()) {
    case SourceState::kSynced:
      return SourceReason::kNone;
    case SourceState::kConnecting:
      return connection_.state() == LiveConnection::State::kUnheard ? SourceReason::kUnheard
                                                                    : SourceReason::kJoining;
    case SourceState::kBootstrap:
      return publisher_.proof.concerns_saved_state() ? SourceReason::kUnproven
                                                     : SourceReason::kJoining;
    case SourceState::kGap:
      return SourceReason::kGap;
    case SourceState::kStale:
      return connection_.up() ? SourceReason::kSilent : SourceReason::kDisconnected;
    case SourceState::kQuarantined:
      return quarantine_.why();
    case SourceState::kSuspect:
    case SourceState::kCleared:
      break;
  }
  return replica_.reason();
}

SourceStatus Source::status(int64_t now_ms) const {
  SourceStatus status = status_;
  status.state = state();
  status.reason = reason();
  status.weight = weight_.At(status.state, now_ms);
  status.extended = publisher_.extended;
  status.next_seq = position_.next();
  status.lag = position_.seen_next() - position_.next();
  status.replacements = sink_->replacements();
  return status;
}

}  // namespace kvcast::stream
