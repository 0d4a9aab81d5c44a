// The functions of Source that change the copy of the state: apply, verify, repair, replace,
// forget.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/stream/follow/source.h"

namespace kvcast::stream {

using residency::PublisherStatus;

void Source::Apply(const Batch& batch) {
  KV_DCHECK(batch.seq == position_.next() && !blocked());
  const BatchResult result = sink_->Apply(Seq(batch.seq), batch.payload);
  applied_payloads_.Add(batch);
  if (replica_.NoteApplied()) status_.first_seq = batch.seq;
  position_.Advance(batch.seq + 1);
  hold_back_.DropBelow(position_.next());
  ++status_.batches;
  // A remove of an unknown block shows a wrong state only if no batch is missing and the publisher
  // supports KVX1. Publishers without KVX1 send removes without stores.
  if (result == BatchResult::kImpossible && publisher_.extended && !replica_.incomplete())
    replica_.Suspect(SourceReason::kContradicted);
  if (result == BatchResult::kComplete) replica_.NoteNothingMissing();
  if (result == BatchResult::kEmptied) replica_.NoteNothingWrong();
  if (result == BatchResult::kIncomplete) {
    replica_.NoteMissing();
    replica_.SetReason(SourceReason::kLostBatches);
  }
  if (result == BatchResult::kDoubtful) replica_.Suspect(SourceReason::kBadEvents);
  if (result == BatchResult::kRefuted) {
    NoteFailure(SourceReason::kContradicted);
    Replace(SourceReason::kContradicted);
  }
  if (result == BatchResult::kUndecodable) Replace(SourceReason::kUndecodable);
  if (result == BatchResult::kTooLarge) DropTooLarge();
  const auto& audit = replica_.pending_audit();
  if (audit && audit->next_seq == position_.next()) CompareDigests(*replica_.TakeAudit());
}

// Apply may call SkipTo, and SkipTo calls ApplyHeld. Then the inner ApplyHeld returns at once, and
// the outer loop continues with the batches that are held at that time. Recursion would need stack
// for each held batch.
void Source::ApplyHeld() {
  if (std::exchange(applies_held_, true)) return;
  while (!blocked()) {
    const std::optional<HoldBack::Held> held = hold_back_.Take(position_.next());
    if (!held) break;
    Apply({held->seq, held->payload});
  }
  applies_held_ = false;
}

void Source::Audit(const PublisherStatus& status) {
  ScheduleAudit();
  replica_.DropAudit();
  if (!status.has_digests || replica_.incomplete() || replica_.suspect() || blocked()) return;
  if (position_.next() < status.next_seq) {
    replica_.AuditLater(status);
  } else {
    CompareDigests(status);
    Settle();
  }
}

void Source::CompareDigests(const PublisherStatus& status) {
  ++status_.digest_checks;
  const DigestVerdict verdict = sink_->Compare(status);
  if (verdict == DigestVerdict::kEqual) quarantine_.NotePass(now_ms_);
  if (verdict != DigestVerdict::kDiffers) return;
  ++status_.digest_mismatches;
  NoteFailure(SourceReason::kDigest);
  Replace(SourceReason::kDigest);
  if (replica_.being_replaced() && publisher_.epoch && sink_->Repairs()) {
    replica_.SetRemedy(Remedy::kCompareBuckets);
  }
}

// No snapshot is requested during the quarantine, because a snapshot would be too large, too.
void Source::DropTooLarge() {
  const bool was_active = quarantine_.active();
  quarantine_.Begin(SourceReason::kTooLarge, now_ms_);
  if (!was_active) ++status_.quarantines;
  replica_.SetReason(SourceReason::kTooLarge);
  replica_.DropAudit();
  StopRepair();
  pacer_.PauseSnapshotsUntil(quarantine_.until_ms());
  Forget(ResetReason::kDoubt);
}

void Source::NoteFailure(SourceReason why) {
  const bool was_active = quarantine_.active();
  quarantine_.NoteFailure(why, now_ms_);
  if (!was_active && quarantine_.active()) ++status_.quarantines;
}

// The state must be replaced. If no snapshot can be requested, the state is forgotten.
void Source::Replace(SourceReason reason) {
  replica_.SetReason(reason);
  replica_.DropAudit();
  StopRepair();
  if (publisher_.extended && publisher_.gives_digests && can_replay_ &&
      now_ms_ >= pacer_.snapshot_due_ms()) {
    replica_.SetRemedy(Remedy::kReplaceAll);
  } else {
    if (!publisher_.gives_digests) pacer_.PauseSnapshots(now_ms_);
    Forget(reason == SourceReason::kLostBatches ? ResetReason::kLostBatches : ResetReason::kDoubt);
  }
}

// Called when the state is at the sequence number of the answer.
void Source::GoOnWithRepair() {
  const PublisherStatus status = *request_.end;
  if (request_.kind == Kind::kBuckets) {
    const uint64_t buckets = sink_->DifferingBuckets(status);
    CloseRequest();
    // If no bucket differs or all buckets differ, the whole state is requested.
    const bool some_differ = buckets != 0 && ~buckets != 0;
    replica_.SetRemedy(some_differ ? Remedy::kReplaceBuckets : Remedy::kReplaceAll, buckets);
    return Settle();
  }
  if (!sink_->CommitSnapshot(status)) return FailRepair();
  request_ = {};  // CloseRequest would also call DropSnapshot
  network_.CloseRequest();
  ++status_.repairs;
  NoteReplaced();
}

void Source::StopRepair() {
  if (replica_.being_replaced()) replica_.SetRemedy(Remedy::kReplaceAll);
  if (request_.repairs()) CloseRequest();
}

void Source::FailRepair() {
  ++status_.repair_failures;
  StopRepair();
  Settle();
}

// Called when the state equals the publisher's state.
void Source::NoteReplaced() {
  replica_.NoteReplaced();
  publisher_.proof.Give();
  pacer_.ForgetHole();
  pacer_.PauseSnapshots(now_ms_);
  NoteJoined();
  ApplyHeld();
  Settle();
}

void Source::Unprove(SourceReason reason) {
  publisher_.proof.Require();
  replica_.SetReason(reason);
}

void Source::TrySkippingHole() {
  if (!position_.has_hole()) return;
  if (!pacer_.GiveUpHole(position_.next())) return;
  if (publisher_.extended) return Replace(SourceReason::kLostBatches);
  SkipTo(hold_back_.first_seq().value_or(position_.seen_next()), ResetReason::kLostBatches);
}

// Forgets the state, and continues with the batches that are available. A hole that cannot be
// filled is skipped.
void Source::Forget(ResetReason reason) {
  // Batches of an answer whose end has not arrived may belong to another epoch.
  hold_back_.DropUnproven();
  const bool skip = reason == ResetReason::kLostBatches || !connection_.up() || !can_replay_;
  SkipTo(skip ? hold_back_.first_seq().value_or(position_.seen_next()) : position_.next(), reason);
}

// Forgets the state, and gives up the batches before `seq`. REQUIRES: seq >= next.
void Source::SkipTo(uint64_t seq, ResetReason reason) {
  hold_back_.DropUnproven();
  const uint64_t lost = seq - position_.next();
  if (lost > 0 || reason == ResetReason::kLostBatches) {
    replica_.SetReason(SourceReason::kLostBatches);
  }
  // Without a proof, the next batches may come from a new publisher. The sink must then also drop
  // the saved state, or the answer of the previous publisher to a challenge.
  const bool may_be_new = publisher_.proof.missing() &&
                          (publisher_.challenged || publisher_.proof.concerns_saved_state());
  if (may_be_new) reason = ResetReason::kRestart;
  const bool had_state = replica_.Forget();
  if (had_state) {
    status_.lost += lost;
    ++status_.resets;
  }
  if (had_state || may_be_new) sink_->Reset(reason);
  if (seq > 0) replica_.NoteMissing();
  if (publisher_.proof.missing()) {
    applied_payloads_.Clear();
    publisher_.epoch.reset();
    publisher_.challenged = false;
    publisher_.proof.Give();
  }
  StopRepair();
  pacer_.ForgetHole();
  position_.Advance(seq);
  ApplyHeld();
}

void Source::BeginEpoch() {
  if (replica_.applied()) ++status_.resets;
  // Even if no batch was applied, the sink may know that batches of the previous publisher are
  // missing, or may have the answer of the previous publisher to a challenge.
  if (replica_.applied() || replica_.incomplete() || publisher_.challenged)
    sink_->Reset(ResetReason::kRestart);
  CloseRequest();
  hold_back_.Clear();
  applied_payloads_.Clear();
  publisher_.BeginEpoch();
  position_ = {};
  replica_.BeginEpoch();
  quarantine_.Reset();
  pacer_.BeginEpoch();
  looks_.Restart();
}

// A new publisher was found. The messages in the live connection may belong to the previous
// publisher.
void Source::BeginEpochAnew() {
  BeginEpoch();
  connection_.Lose();
  network_.RenewLive();
}

// A live batch showed a new publisher. The source has received no other batch of this publisher.
void Source::BeginEpochWith(const Batch& batch) {
  if (publisher_.extended) return BeginEpochAnew();
  BeginEpoch();
  HandleLive(batch);
}

}  // namespace kvcast::stream
