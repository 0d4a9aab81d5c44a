// SPDX-License-Identifier: Apache-2.0
#include "src/stream/source.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::stream {

Source::Source(const SourceLimits& limits, bool can_replay, SourceHooks hooks)
    : limits_(limits),
      can_replay_(can_replay),
      hooks_(std::move(hooks)),
      hold_back_(limits.hold_back_batches, limits.hold_back_bytes) {}

void Source::OnConnected(int64_t now_ms) {
  connected_ = true;
  if (std::exchange(was_connected_, true)) {
    ++status_.reconnects;
    suspect_ = next_ > 0;
  }
  // May be of an epoch that is over; if it is not, a replay brings it again.
  hold_back_.Clear();
  live_next_ = std::min(live_next_, next_);
  seen_next_ = next_;
  recheck_ = false;
  tries_ = 0;
  if (can_replay_) OpenRequest(now_ms);
}

void Source::OnDisconnected() {
  connected_ = false;
  CloseRequest();
}

// A new publisher was found by its replay. What the live connection still holds may be of the one
// before.
void Source::BeginEpochAnew() {
  BeginEpoch();
  OnDisconnected();
  hooks_.renew_live();
}

void Source::OnLive(const Batch& batch, int64_t now_ms) {
  probe_due_ms_ = now_ms + limits_.probe_interval_ms;
  if (batch.seq < live_next_) return OnLiveStepBack(batch, now_ms);
  if (batch.seq < next_) return OnLiveOverlap(batch, now_ms);
  if (batch.seq > next_ && !has_hole() && applied_) ++status_.gaps;
  live_next_ = batch.seq + 1;
  seen_next_ = std::max(seen_next_, live_next_);
  if (batch.seq == next_ && !suspect_) {
    unanswered_ = false;
    Apply(batch);
    return ApplyHeld();
  }
  hold_back_.Add(batch);
  if (connected_ && !request_.open) {
    tries_ = 0;
    Settle(now_ms);
  }
}

// One connection delivers in order, so a number that is not above the last one was published again:
// by a new publisher, unless the very same batch was sent twice. Number 0 has no such excuse: a
// restarted engine may well begin with the same bytes.
void Source::OnLiveStepBack(const Batch& batch, int64_t now_ms) {
  if (batch.seq != 0 && IsDuplicate(batch)) {
    ++status_.duplicates;
    return;
  }
  BeginEpoch();
  OnLive(batch, now_ms);
}

// Replay was ahead of the live stream.
void Source::OnLiveOverlap(const Batch& batch, int64_t now_ms) {
  const FingerprintWindow::Match match = applied_payloads_.Compare(batch);
  if (match == FingerprintWindow::Match::kOther) {
    BeginEpoch();
    return OnLive(batch, now_ms);
  }
  live_next_ = batch.seq + 1;
  ++status_.duplicates;
  if (match == FingerprintWindow::Match::kSame) return;
  // Too long ago to remember: an old duplicate, or a new publisher that has come this far. Replies
  // that are on their way are of the same epoch as the ones before them, so they come first.
  recheck_ = true;
  if (connected_ && !request_.open) Settle(now_ms);
}

bool Source::IsDuplicate(const Batch& batch) const {
  if (applied_payloads_.Compare(batch) == FingerprintWindow::Match::kSame) return true;
  const std::optional<Frame> held = hold_back_.Find(batch.seq);
  return held && std::ranges::equal(*held, batch.payload);
}

void Source::OnReply(const Reply& reply, int64_t now_ms) {
  if (!request_.open) return;
  request_.deadline_ms = now_ms + limits_.replay_timeout_ms;
  unanswered_ = false;
  switch (reply.kind) {
    case ReplyKind::kMalformed:
      return OnBadMessage();
    case ReplyKind::kBatch:
      return OnReplyBatch(reply.batch);
    case ReplyKind::kEnd:
      return OnReplayEnd(now_ms);
  }
}

void Source::OnReplyBatch(const Batch& batch) {
  const bool oldest_held = !std::exchange(request_.answered, true);
  ring_seen_ = true;
  if (batch.seq < next_) return OnReplyOverlap(batch);
  ++status_.replayed;
  seen_next_ = std::max(seen_next_, batch.seq + 1);
  // The ring begins above the hole, or the overlap that would clear the suspicion has left it.
  const bool hole_is_final = oldest_held && batch.seq > next_;
  if (hole_is_final || suspect_) {
    SkipTo(std::min(batch.seq, hold_back_.first_seq().value_or(batch.seq)));
  }
  if (batch.seq > next_) hold_back_.Add(batch);
  if (batch.seq != next_) return;
  tries_ = 0;
  Apply(batch);
  ApplyHeld();
}

void Source::OnReplyOverlap(const Batch& batch) {
  switch (applied_payloads_.Compare(batch)) {
    case FingerprintWindow::Match::kSame:
      suspect_ = false;
      return ApplyHeld();
    case FingerprintWindow::Match::kOther:
      return BeginEpochAnew();
    case FingerprintWindow::Match::kUnknown:
      return;
  }
}

void Source::OnReplayEnd(int64_t now_ms) {
  const Request ended = request_;
  CloseRequest();
  joined_ = true;
  probe_due_ms_ = now_ms + (std::exchange(settled_, true) ? limits_.probe_interval_ms : kSettleMs);
  if (ended.wants_overlap && !ended.answered && (suspect_ || ring_seen_)) {
    // The newest batch of the ring is below one that was applied: it is the ring of a new epoch.
    return BeginEpochAnew();
  }
  if (suspect_) SkipTo(hold_back_.first_seq().value_or(next_));
  TrySkippingHole();
  Settle(now_ms);
}

void Source::OnTimer(int64_t now_ms) {
  if (now_ms < deadline_ms()) return;
  if (!request_.open) return OpenRequest(now_ms);
  ++status_.replay_timeouts;
  unanswered_ = true;
  TrySkippingHole();
  OpenRequest(now_ms);
}

int64_t Source::deadline_ms() const {
  if (request_.open) return request_.deadline_ms;
  const bool probes = can_replay_ && connected_ && limits_.probe_interval_ms > 0;
  return probes ? probe_due_ms_ : kNever;
}

void Source::Apply(const Batch& batch) {
  KV_DCHECK(batch.seq == next_ && !suspect_);
  hooks_.apply(batch);
  applied_payloads_.Add(batch);
  if (!std::exchange(applied_, true)) status_.first_seq = batch.seq;
  joined_ = true;
  next_ = batch.seq + 1;
  ++status_.batches;
}

void Source::ApplyHeld() {
  if (suspect_) return;
  while (const std::optional<HoldBack::Held> held = hold_back_.Take(next_)) {
    Apply({held->seq, held->payload});
  }
}

void Source::TrySkippingHole() {
  if (!has_hole() || ++tries_ < kMaxTries) return;
  SkipTo(hold_back_.first_seq().value_or(seen_next_));
}

// Gives up what lies before `seq`. REQUIRES: seq >= next_.
void Source::SkipTo(uint64_t seq) {
  KV_CHECK(seq >= next_);
  if (std::exchange(applied_, false)) {
    status_.lost += seq - next_;
    ++status_.resets;
    hooks_.reset(ResetReason::kLostBatches);
    degraded_ = true;
  }
  if (seq > 0) degraded_ = true;
  if (suspect_) applied_payloads_.Clear();
  suspect_ = false;
  joined_ = true;
  tries_ = 0;
  next_ = seq;
  ApplyHeld();
}

void Source::BeginEpoch() {
  if (applied_) {
    ++status_.resets;
    hooks_.reset(ResetReason::kRestart);
  }
  CloseRequest();
  hold_back_.Clear();
  applied_payloads_.Clear();
  next_ = live_next_ = seen_next_ = 0;
  joined_ = applied_ = degraded_ = suspect_ = recheck_ = ring_seen_ = settled_ = false;
  tries_ = 0;
}

// Goes on until nothing is open: by replay, or without one by giving up.
void Source::Settle(int64_t now_ms) {
  if (std::exchange(recheck_, false)) suspect_ = true;
  while (has_hole() || suspect_) {
    if (can_replay_) return OpenRequest(now_ms);
    SkipTo(hold_back_.first_seq().value_or(seen_next_));
  }
}

void Source::OpenRequest(int64_t now_ms) {
  request_ = {true, false, next_ > 0, now_ms + limits_.replay_timeout_ms};
  ++status_.replays;
  hooks_.request_replay(next_ > 0 ? next_ - 1 : 0);
}

void Source::CloseRequest() {
  if (std::exchange(request_, {}).open) hooks_.close_replay();
}

SourceState Source::state() const {
  if (!connected_) return SourceState::kConnecting;
  if (!joined_) return request_.open ? SourceState::kReplaying : SourceState::kConnecting;
  if (suspect_ && !can_replay_) return SourceState::kDegraded;
  if (has_hole() || suspect_ || unanswered_) return SourceState::kReplaying;
  return degraded_ ? SourceState::kDegraded : SourceState::kSynced;
}

SourceStatus Source::status() const {
  SourceStatus status = status_;
  status.state = state();
  status.next_seq = next_;
  return status;
}

}  // namespace kvcast::stream
