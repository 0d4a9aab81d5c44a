// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/source.h"

#include <algorithm>
#include <utility>

namespace kvcast::stream {

Source::Source(const SourceLimits& limits, bool can_replay, ReplicaSink& sink,
               SourceNetwork& network)
    : limits_(limits),
      can_replay_(can_replay),
      sink_(&sink),
      network_(network),
      pacer_(limits.jitter_seed),
      looks_(limits.probe_interval_ms),
      hold_back_(limits.hold_back_batches, limits.hold_back_bytes) {}

void Source::Resume(const SavedPosition& position) {
  if (position.next_seq == 0) return;
  position_.Advance(position.next_seq);
  applied_payloads_.Restore(position.fingerprints);
  replica_.Restore(position.complete);
  publisher_.epoch = position.epoch;
  // Only a publisher with KVX1 has an epoch. A plain replay might not prove the state, because the
  // state of a snapshot has no fingerprints.
  publisher_.extended = limits_.extension && position.epoch;
  publisher_.proof.RequireForSavedState();
  replica_.SetReason(SourceReason::kUnproven);
  status_.first_seq = position.first_seq;
}

// A missing proof does not change the state: the state is still the result of the applied batches.
std::optional<SavedPosition> Source::Position() const {
  if (!replica_.applied() || replica_.suspect() || replica_.being_replaced()) return std::nullopt;
  if (quarantine_.active()) return std::nullopt;
  return SavedPosition{.epoch = publisher_.epoch,
                       .first_seq = status_.first_seq,
                       .next_seq = position_.next(),
                       .complete = !replica_.incomplete(),
                       .fingerprints = applied_payloads_.All()};
}

void Source::Mute() {
  static BatchSink no_sink({});
  sink_ = &no_sink;
}

void Source::OnConnected(int64_t now_ms) {
  now_ms_ = now_ms;
  CloseRequest();
  publisher_.Reconnect();
  // The held batches may belong to an ended epoch. If they do not, a replay returns them again.
  hold_back_.Clear();
  position_.Reconnect();
  looks_.Restart();
  pacer_.Reconnect();
  if (connection_.Establish(now_ms)) {
    ++status_.reconnects;
    position_.next() > 0 ? Unprove(SourceReason::kReconnected) : JoinAnew();
  }
  // A request is made even if no batch seems to be missing, because the reply shows the state of
  // this publisher.
  if (can_replay_) OpenRequest(limits_.extension ? Kind::kStatus : Kind::kReplay);
  NoteState();
}

// Nothing was applied, and the publisher of the new connection may be another one.
void Source::JoinAnew() {
  replica_.Unjoin();
  publisher_.epoch.reset();
}

void Source::OnDisconnected() {
  connection_.Lose();
  CloseRequest();
  NoteState();
}

void Source::OnLive(const Batch& batch, int64_t now_ms) {
  now_ms_ = now_ms;
  connection_.NoteMessage(now_ms_);
  looks_.NoteProbe(now_ms);
  HandleLive(batch);
  NoteState();
}

void Source::HandleLive(const Batch& batch) {
  if (batch.seq < position_.live_next()) return OnLiveStepBack(batch);
  if (batch.seq < position_.next()) return OnLiveOverlap(batch);
  if (batch.seq > position_.next() && !position_.has_hole() && replica_.applied()) ++status_.gaps;
  position_.SeeLive(batch.seq);
  if (publisher_.proof.required_at_next_live()) {
    // All replies to the open request belong to one epoch, so the remaining replies are applied
    // first. A later replay returns this live batch again.
    if (request_.open()) return;
    publisher_.proof.ApplyAtNextLive();
    Unprove(SourceReason::kUnproven);
  }
  if (batch.seq == position_.next() && !blocked()) {
    Apply(batch);
    ApplyHeld();
  } else {
    hold_back_.Add(batch);
  }
  Settle();
}

// A connection delivers batches in order. A number that is not above the highest live number has
// one of two causes: a new publisher uses the number again, or the same batch was sent twice.
// Sequence 0 with the same bytes may be a restart, because a restarted engine may begin with the
// same bytes. So sequence 0 never counts as a duplicate.
void Source::OnLiveStepBack(const Batch& batch) {
  const FingerprintWindow::Match match = CompareWithKnown(batch);
  if (match == FingerprintWindow::Match::kSame && batch.seq != 0) {
    ++status_.duplicates;
    return;
  }
  if (match == FingerprintWindow::Match::kUnknown && batch.seq != 0 && can_replay_) {
    // The window does not hold this number. The replay will identify the publisher, and returns the
    // next batch. If the next batch were held too, it would stay held after that replay.
    const bool held = batch.seq > position_.next() || blocked();
    if (held && batch.seq >= position_.next()) hold_back_.Add(batch);
    publisher_.proof.RequireAfterRequest();
    return Settle();
  }
  BeginEpochWith(batch);
}

// The batch was applied already, because a replay was ahead of the live stream.
void Source::OnLiveOverlap(const Batch& batch) {
  const FingerprintWindow::Match match = applied_payloads_.Compare(batch);
  if (match == FingerprintWindow::Match::kOther) return BeginEpochWith(batch);
  // Without replay there can be no proof. The publisher of the state would send a later number.
  if (match == FingerprintWindow::Match::kUnknown && !can_replay_ && publisher_.proof.missing())
    return BeginEpochWith(batch);
  position_.SeeLive(batch.seq);
  ++status_.duplicates;
  if (match == FingerprintWindow::Match::kSame) return;
  // The window does not hold this number. The batch is an old duplicate, or a new publisher has
  // reached this number. The source requests a proof before it applies the next new batch.
  publisher_.proof.RequireAtNextLive();
}

// Compares with the batch of this number that was applied or is held.
FingerprintWindow::Match Source::CompareWithKnown(const Batch& batch) const {
  const std::optional<Frame> held = hold_back_.Find(batch.seq);
  if (!held) return applied_payloads_.Compare(batch);
  return std::ranges::equal(*held, batch.payload) ? FingerprintWindow::Match::kSame
                                                  : FingerprintWindow::Match::kOther;
}

void Source::OnContradiction(int64_t now_ms) {
  now_ms_ = now_ms;
  if (replica_.applied()) {
    NoteFailure(SourceReason::kContradicted);
    Replace(SourceReason::kContradicted);
  }
  Settle();
  NoteState();
}

}  // namespace kvcast::stream
