// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/feed_state.h"

namespace kvcast::router {
namespace {

constexpr int kServerError = 500;

// Sources that a subscriber follows have the same weights; see SourceStatus::weight.
double FeedWeight(SourceState state, int64_t unsure_ms) {
  if (state == SourceState::kConnecting) return 0;
  if (state == SourceState::kSynced || state == SourceState::kCleared) return 1;
  if (unsure_ms < 5000) return 0.5;
  return unsure_ms < 30000 ? 0.25 : 0;
}

}  // namespace

void FeedState::OnHeard(int64_t now_ms) {
  ++counters_.answers;
  if (failing_since_ms_ && heard_) ++status_.reconnects;
  failing_since_ms_.reset();
  heard_ = true;
  // After a cut, only an event shows whether events were lost, or whether the engine has restarted.
  if (!cut_) unsure_since_ms_ = now_ms;
}

void FeedState::OnApplied(BatchResult result, int64_t now_ms) {
  OnHeard(now_ms);
  ++status_.batches;
  ++status_.next_seq;
  if (result == BatchResult::kNoEvents) return;
  cut_ = false;
  const bool whole = result == BatchResult::kComplete || result == BatchResult::kEmptied;
  if (result == BatchResult::kUndecodable) {
    ++counters_.undecodable;
    why_ = SourceReason::kUndecodable;
  } else if (!whole && whole_) {
    ++status_.gaps;
    why_ = SourceReason::kLostBatches;
  }
  whole_ = whole;
}

void FeedState::OnFailedPoll(FetchOutcome outcome, int status, int64_t now_ms) {
  ++(outcome == FetchOutcome::kCut ? counters_.cuts : counters_.failures);
  if (!failing_since_ms_) {
    failing_since_ms_ = now_ms;
    if (!cut_) unsure_since_ms_ = now_ms;
  }
  if (outcome == FetchOutcome::kCut) cut_ = true;
  // Before the first batch, the worker has no blocks. So neither a restart of the engine nor a lost
  // remove can make its blocks wrong.
  const bool may_lose = outcome == FetchOutcome::kUnreached || status >= kServerError;
  if (may_lose && status_.batches > 0) cut_ = true;
}

void FeedState::OnReset(SourceReason reason) {
  ++status_.resets;
  whole_ = false;
  why_ = reason;
}

SourceState FeedState::StateAt(int64_t now_ms) const {
  if (!heard_) return SourceState::kConnecting;
  if (failing_since_ms_ && now_ms - *failing_since_ms_ >= stale_ms_) return SourceState::kStale;
  if (cut_) return SourceState::kSuspect;
  return whole_ ? SourceState::kSynced : SourceState::kCleared;
}

SourceStatus FeedState::status(int64_t now_ms) const {
  SourceStatus status = status_;
  status.state = StateAt(now_ms);
  status.weight = FeedWeight(status.state, now_ms - unsure_since_ms_);
  switch (status.state) {
    case SourceState::kConnecting:
      status.reason = polled_ && now_ms - began_ms_ >= kUnheardMs ? SourceReason::kUnheard
                                                                  : SourceReason::kJoining;
      break;
    case SourceState::kStale:
      status.reason = SourceReason::kDisconnected;
      break;
    case SourceState::kSuspect:
      status.reason = SourceReason::kReconnected;
      break;
    case SourceState::kCleared:
      status.reason = why_;
      break;
    default:
      break;
  }
  return status;
}

}  // namespace kvcast::router
