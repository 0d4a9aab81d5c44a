// The status functions of Source.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/stream/follow/source.h"

namespace kvcast::stream {
namespace {

double WeightOf(SourceState state, int64_t unsure_ms) {
  if (state == SourceState::kConnecting || state == SourceState::kBootstrap) return 0;
  if (state == SourceState::kQuarantined) return 0;
  if (state == SourceState::kSynced || state == SourceState::kCleared) return 1;
  if (state == SourceState::kGap && unsure_ms <= 250) return 1;
  if (unsure_ms < 5000) return 0.5;
  return unsure_ms < 30000 ? 0.25 : 0;
}

}  // namespace

SourceState Source::state() const {
  if (quarantine_.active()) return SourceState::kQuarantined;
  if (!connected_) return joined_ ? SourceState::kStale : SourceState::kConnecting;
  if (stale_) return SourceState::kStale;
  const bool replacing = replace_ || request_.ask == Ask::kSnapshot;
  if (!joined_ || (replacing && !applied_)) return SourceState::kBootstrap;
  if (replacing || unproven_) return SourceState::kSuspect;
  if (has_hole()) return applied_ || !incomplete_ ? SourceState::kGap : SourceState::kBootstrap;
  if (incomplete_) return SourceState::kCleared;
  if (request_.ask == Ask::kReplay && cuts_ > 0) return SourceState::kGap;
  return doubtful_ ? SourceState::kSuspect : SourceState::kSynced;
}

SourceReason Source::reason() const {
  switch (state()) {
    case SourceState::kSynced:
      return SourceReason::kNone;
    case SourceState::kConnecting:
      return unheard_ && !was_connected_ ? SourceReason::kUnheard : SourceReason::kJoining;
    case SourceState::kBootstrap:
      return SourceReason::kJoining;
    case SourceState::kGap:
      return SourceReason::kGap;
    case SourceState::kStale:
      return connected_ ? SourceReason::kSilent : SourceReason::kDisconnected;
    case SourceState::kQuarantined:
      return quarantine_.why();
    case SourceState::kSuspect:
    case SourceState::kCleared:
      break;
  }
  return why_;
}

SourceStatus Source::status(int64_t now_ms) const {
  SourceStatus status = status_;
  status.state = state();
  status.reason = reason();
  status.weight = WeightOf(status.state, now_ms - unsure_since_ms_);
  status.extended = extended_;
  status.next_seq = next_;
  status.lag = std::max(seen_next_, next_) - next_;
  return status;
}

}  // namespace kvcast::stream
