// The functions of Source that handle replies.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/stream/follow/source.h"

namespace kvcast::stream {

using residency::PublisherStatus;

void Source::OnReply(const Reply& reply, int64_t now_ms) {
  if (!request_.open() || request_.end) return;
  now_ms_ = now_ms;
  connection_.NoteMessage(now_ms_);
  // A malformed reply does not extend the deadline, so a request that gets only malformed replies
  // times out.
  if (!request_.cut && reply.kind != ReplyKind::kMalformed) {
    request_.deadline_ms = now_ms + reply_timeout_ms();
  }
  switch (reply.kind) {
    case ReplyKind::kMalformed:
      OnBadMessage();
      break;
    case ReplyKind::kBatch:
      OnReplyBatch(reply.batch);
      break;
    case ReplyKind::kEnd:
      OnReplyEnd(reply.batch.payload);
      break;
  }
  NoteState();
}

void Source::OnReplyCut(int64_t now_ms) {
  now_ms_ = now_ms;
  if (!request_.open() || request_.end || std::exchange(request_.cut, true)) return;
  if (request_.kind != Kind::kSnapshot && !request_.repairs()) pacer_.NoteCut();
  request_.deadline_ms = now_ms + std::min(pacer_.cut_pause_ms(), limits_.replay_timeout_ms);
  NoteState();
}

void Source::OnReplyBatch(const Batch& batch) {
  if (request_.kind == Kind::kReplay) return OnReplayBatch(batch);
  if (request_.kind == Kind::kSnapshot || request_.kind == Kind::kRepair)
    return OnSnapshotPart(batch);
  if (request_.kind == Kind::kChallenge) return OnChallengeAnswer(batch);
  OnBadMessage();  // the answer to a status request has no batches
}

void Source::OnChallengeAnswer(const Batch& batch) {
  if (std::exchange(request_.answered, true)) return OnBadMessage();  // an answer has one batch
  sink_->OnChallengeAnswer(batch.payload);
}

void Source::OnReplayBatch(const Batch& batch) {
  const bool is_first = !std::exchange(request_.answered, true);
  publisher_.replied_batch = true;
  if (batch.seq < position_.next()) return OnReplyOverlap(batch);
  ++status_.replayed;
  position_.SeeUpTo(batch.seq + 1);
  const bool proven = request_.proven && !publisher_.proof.missing();
  if (request_.extended) {
    // The status at the end of the answer contains the epoch.
    if (!proven && !publisher_.proof.missing()) Unprove(SourceReason::kUnproven);
  } else if (!proven || (is_first && batch.seq > position_.next())) {
    // The publisher's ring does not hold the applied batch that would prove that the publisher is
    // the same, or does not hold the batches of the hole.
    SkipTo(std::min(batch.seq, hold_back_.first_seq().value_or(batch.seq)),
           ResetReason::kLostBatches);
    request_.proven = true;
  }
  if (batch.seq > position_.next() || blocked())
    hold_back_.Add(batch, request_.extended && !proven);
  if (batch.seq != position_.next() || blocked()) return;
  pacer_.ForgetCuts();
  Apply(batch);
  ApplyHeld();
}

void Source::OnReplyOverlap(const Batch& batch) {
  switch (applied_payloads_.Compare(batch)) {
    case FingerprintWindow::Match::kSame:
      publisher_.proof.Give();
      request_.proven = true;
      return ApplyHeld();
    case FingerprintWindow::Match::kOther:
      return BeginEpochAnew();
    case FingerprintWindow::Match::kUnknown:
      return;
  }
}

void Source::OnReplyEnd(Frame payload) {
  const SourceRequest ended = request_;
  std::optional<PublisherStatus> status;
  if (ended.extended && !payload.empty()) {
    Result<PublisherStatus> parsed = residency::ParseStatus(payload);
    if (!parsed.ok()) return OnBadMessage();  // the request stays open, and times out
    status = std::move(parsed).value();
  }
  if (status) hold_back_.Prove();  // the batches of this answer have the epoch of the status
  if (ended.kind == Kind::kSnapshot) return OnSnapshotEnd(status, ended.resume);
  if (request_.repairs()) return OnRepairEnd(status, ended.resume);
  if (ended.kind == Kind::kReplay) pacer_.ForgetCuts();
  CloseRequest();
  if (ended.extended && !status && publisher_.extended) {
    // The previous publisher supported KVX1, and the publisher of this answer does not. The live
    // connection may belong to the previous publisher.
    publisher_.extended = false;
    publisher_.extended_known = true;
    return BeginEpochAnew();
  }
  if (ended.kind == Kind::kChallenge) {
    if (status && TakeStatus(*status, ended)) Settle();
    return;
  }
  ended.kind == Kind::kStatus ? OnStatusEnd(ended, status) : OnReplayEnd(ended, status);
  ChallengeIfWanted();
}

void Source::OnStatusEnd(const SourceRequest& ended, const std::optional<PublisherStatus>& status) {
  const bool first_look = !std::exchange(publisher_.extended_known, true);
  NoteLooked();
  if (!status) {
    if (first_look) OpenRequest(Kind::kReplay);
    return;
  }
  publisher_.answers_challenges = status->answers_challenges;
  if (!TakeStatus(*status, ended)) return;
  // The live connection does not deliver batches that were published before it was established.
  if (first_look) position_.SeeUpTo(status->next_seq);
  if (position_.has_hole() && position_.next() < status->first_held)
    Replace(SourceReason::kLostBatches);
  Settle();
  // A replay that overlaps the applied batches shows the epoch of these batches.
  if (!request_.open() && !publisher_.epoch) return OpenRequest(Kind::kReplay);
  if (!request_.open() && !wants_request()) NoteJoined();
  if (replica_.joined() && publisher_.epoch) Audit(*status);
}

void Source::OnReplayEnd(const SourceRequest& ended, const std::optional<PublisherStatus>& status) {
  if (!status) return OnPlainReplayEnd(ended);
  publisher_.extended_known = true;
  if (!TakeStatus(*status, ended)) return;
  NoteJoined();
  if (!publisher_.epoch) Replace(SourceReason::kUnproven);
  if (position_.has_hole() && position_.next() < status->first_held)
    Replace(SourceReason::kLostBatches);
  TrySkippingHole();
  Settle();
  Audit(*status);
}

void Source::OnPlainReplayEnd(const SourceRequest& ended) {
  NoteJoined();
  if (ended.wants_overlap && !ended.answered &&
      (publisher_.proof.missing() || publisher_.replied_batch)) {
    // The newest batch of the publisher's ring is below an applied batch. The ring therefore
    // belongs to a new epoch.
    return BeginEpochAnew();
  }
  if (publisher_.proof.missing())
    SkipTo(hold_back_.first_seq().value_or(position_.next()), ResetReason::kLostBatches);
  TrySkippingHole();
  Settle();
}

// Handles the status in the answer to a request of any kind. False: the status belongs to a new
// epoch, and this function has begun the new epoch.
bool Source::TakeStatus(const PublisherStatus& status, const SourceRequest& request) {
  publisher_.extended = true;
  publisher_.latest_epoch = status.epoch;
  publisher_.copies = 0;
  for (const GroupTierStatus& group : status.groups) publisher_.copies += group.digest.total.copies;
  const bool other = publisher_.Replaces(status, request.applied_next);
  if (other ||
      (!publisher_.epoch && !replica_.applied() && !publisher_.IsPeerOfConnection(status))) {
    BeginEpochAnew();
    return false;
  }
  const bool proven = request.kind == Kind::kReplay && request.proven;
  if (publisher_.epoch || proven || !replica_.applied()) {
    // Held batches may belong to the previous publisher.
    if (!publisher_.epoch && !replica_.applied()) hold_back_.Clear();
    publisher_.epoch = status.epoch;
    publisher_.gives_digests = status.has_digests;
    publisher_.proof.Give();
  }
  // The newest batches may arrive later.
  position_.Announce(status.next_seq, now_ms_ + LookSchedule::kSettleMs);
  ApplyHeld();
  return true;
}

void Source::OnSnapshotPart(const Batch& batch) {
  if (!request_.resume) request_.resume = batch.seq;
  if (*request_.resume == batch.seq && sink_->AddToSnapshot(batch.payload)) return;
  request_.kind == Kind::kRepair ? FailRepair() : FailSnapshot();
}

void Source::OnSnapshotEnd(const std::optional<PublisherStatus>& status,
                           std::optional<uint64_t> resume) {
  if (!status) {
    publisher_.extended = false;
    if (publisher_.epoch) return BeginEpochAnew();
    return FailSnapshot();
  }
  publisher_.latest_epoch = status->epoch;
  if (publisher_.epoch ? *publisher_.epoch != status->epoch
                       : !publisher_.IsPeerOfConnection(*status))
    return BeginEpochAnew();
  const bool usable = status->has_digests &&
                      resume.value_or(status->next_seq) == status->next_seq &&
                      status->next_seq >= position_.next();
  if (!status->has_digests) return GiveUpSnapshots();
  if (!usable || !sink_->CommitSnapshot(*status)) return FailSnapshot();
  request_.kind = Kind::kNone;  // CloseRequest would also call DropSnapshot
  network_.CloseRequest();
  ++status_.snapshots;
  if (!publisher_.epoch) applied_payloads_.Clear();
  publisher_.epoch = status->epoch;
  status_.first_seq = status->next_seq;
  position_.Advance(status->next_seq);
  NoteReplaced();
}

void Source::FailSnapshot() {
  ++status_.snapshot_failures;
  CloseRequest();
  if (pacer_.GiveUpSnapshot() || !publisher_.extended) {
    NoteFailure(replica_.reason());
    const int64_t pause_ends_ms = now_ms_ + RequestPacer::kSnapshotPauseMs;
    pacer_.PauseSnapshotsUntil(
        quarantine_.active() ? std::max(pause_ends_ms, quarantine_.until_ms()) : pause_ends_ms);
    Forget(ResetReason::kDoubt);
  }
  Settle();
}

// The publisher gives no snapshots in the rest of its epoch, so missing batches stay missing.
void Source::GiveUpSnapshots() {
  ++status_.snapshot_failures;
  CloseRequest();
  pacer_.PauseSnapshots(now_ms_);
  publisher_.gives_digests = false;
  Forget(ResetReason::kLostBatches);
  Settle();
}

// The state in the answer is not older than the local state, because no batch was applied since the
// request. The batches between the two states are held back, or arrive later.
void Source::OnRepairEnd(const std::optional<PublisherStatus>& status,
                         std::optional<uint64_t> resume) {
  if (!status) {
    publisher_.extended = false;
    return BeginEpochAnew();
  }
  if (!TakeStatus(*status, request_)) return;
  const bool usable =
      status->has_digests && resume.value_or(status->next_seq) == status->next_seq &&
      status->next_seq >= position_.next() &&
      std::ranges::all_of(status->groups,
                          [](const GroupTierStatus& group) { return group.buckets.has_value(); });
  if (!usable) return FailRepair();
  request_.end = status;
  ApplyHeld();
  Settle();
}

}  // namespace kvcast::stream
