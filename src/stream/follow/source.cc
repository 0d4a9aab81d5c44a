// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/source.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::stream {

using residency::EncodeRequest;
using residency::PublisherStatus;
using residency::Verb;

Source::Source(const SourceLimits& limits, bool can_replay, ReplicaSink& sink,
               SourceNetwork& network)
    : limits_(limits),
      can_replay_(can_replay),
      sink_(&sink),
      network_(network),
      jitter_(limits.jitter_seed),
      hold_back_(limits.hold_back_batches, limits.hold_back_bytes) {}

void Source::Mute() {
  static BatchSink nobody({});
  sink_ = &nobody;
}

void Source::OnConnected(int64_t now_ms) {
  now_ms_ = now_ms;
  connected_ = true;
  CloseRequest();
  NoteSign();
  epoch_at_connect_ = last_epoch_;
  // The publisher of this connection may or may not support KVX1.
  asked_ = false;
  // The held batches may belong to an ended epoch. If they do not, a replay returns them again.
  hold_back_.Clear();
  live_next_ = std::min(live_next_, next_);
  seen_next_ = next_;
  recheck_ = prove_ = settled_ = false;
  told_due_ms_ = kNever;
  tries_ = snapshot_tries_ = cuts_ = 0;
  if (std::exchange(was_connected_, true)) {
    ++status_.reconnects;
    if (next_ > 0) Unprove(SourceReason::kReconnected);
  }
  // A request is made even if no batch seems to be missing, because it is the first look at this
  // publisher.
  if (can_replay_) OpenRequest(limits_.extension ? Ask::kStatus : Ask::kReplay);
  NoteState();
}

void Source::OnDisconnected() {
  connected_ = false;
  CloseRequest();
  NoteState();
}

// Replies showed a new publisher. The messages that the live connection still holds may belong to
// the previous publisher.
void Source::BeginEpochAnew() {
  BeginEpoch();
  connected_ = false;
  network_.RenewLive();
}

// A live batch showed a new publisher. It is the first batch of that publisher here.
void Source::BeginEpochWith(const Batch& batch) {
  if (extended_) return BeginEpochAnew();
  BeginEpoch();
  HandleLive(batch);
}

void Source::OnLive(const Batch& batch, int64_t now_ms) {
  now_ms_ = now_ms;
  NoteSign();
  probe_due_ms_ = now_ms + limits_.probe_interval_ms;
  HandleLive(batch);
  NoteState();
}

void Source::HandleLive(const Batch& batch) {
  if (batch.seq < live_next_) return OnLiveStepBack(batch);
  if (batch.seq < next_) return OnLiveOverlap(batch);
  if (batch.seq > next_ && !has_hole() && applied_) ++status_.gaps;
  live_next_ = batch.seq + 1;
  seen_next_ = std::max(seen_next_, live_next_);
  if (recheck_) {
    // Open replies belong to the same epoch as the replies before them, so they are applied first.
    // A later replay then returns this batch.
    if (request_.open()) return;
    recheck_ = false;
    Unprove(SourceReason::kUnproven);
  }
  if (batch.seq == next_ && !blocked()) {
    Apply(batch);
    ApplyHeld();
  } else {
    hold_back_.Add(batch);
  }
  Settle();
}

// A connection delivers in order. So a number that is not above the last one was published again:
// by a new publisher, or because the same batch was sent twice. Sequence 0 with the same bytes may
// be a restart, because a restarted engine may begin with the same bytes. So sequence 0 is never a
// duplicate.
void Source::OnLiveStepBack(const Batch& batch) {
  const FingerprintWindow::Match match = CompareWithKnown(batch);
  if (match == FingerprintWindow::Match::kSame && batch.seq != 0) {
    ++status_.duplicates;
    return;
  }
  if (match == FingerprintWindow::Match::kUnknown && batch.seq != 0 && can_replay_) {
    // Undecidable here: the replay will identify the publisher.
    if (batch.seq >= next_) hold_back_.Add(batch);
    prove_ = true;
    return Settle();
  }
  BeginEpochWith(batch);
}

// The replay was ahead of the live stream.
void Source::OnLiveOverlap(const Batch& batch) {
  const FingerprintWindow::Match match = applied_payloads_.Compare(batch);
  if (match == FingerprintWindow::Match::kOther) return BeginEpochWith(batch);
  live_next_ = batch.seq + 1;
  ++status_.duplicates;
  if (match == FingerprintWindow::Match::kSame) return;
  // The window does not hold this number. The batch is an old duplicate, or a new publisher has
  // reached this number. The publisher is asked before the next new batch is applied.
  recheck_ = true;
}

// Compares with the batch of this number that was applied or is held.
FingerprintWindow::Match Source::CompareWithKnown(const Batch& batch) const {
  const std::optional<Frame> held = hold_back_.Find(batch.seq);
  if (!held) return applied_payloads_.Compare(batch);
  return std::ranges::equal(*held, batch.payload) ? FingerprintWindow::Match::kSame
                                                  : FingerprintWindow::Match::kOther;
}

void Source::OnReply(const Reply& reply, int64_t now_ms) {
  if (!request_.open() || request_.end) return;
  now_ms_ = now_ms;
  NoteSign();
  if (!request_.cut) request_.deadline_ms = now_ms + limits_.replay_timeout_ms;
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

// The reply that ended the connection may never be able to arrive, so each cut doubles the pause
// before the next request.
void Source::OnReplyCut(int64_t now_ms) {
  now_ms_ = now_ms;
  if (!request_.open() || request_.end || std::exchange(request_.cut, true)) return;
  if (request_.ask != Ask::kSnapshot && !asks_for_repair()) ++cuts_;
  const int doublings = std::clamp(cuts_ - 1, 0, 6);
  request_.deadline_ms = now_ms + std::min(kMinRetryMs << doublings, limits_.replay_timeout_ms);
  NoteState();
}

void Source::OnReplyBatch(const Batch& batch) {
  if (request_.ask == Ask::kReplay) return OnReplayBatch(batch);
  if (request_.ask == Ask::kSnapshot || request_.ask == Ask::kRepair) return OnSnapshotPart(batch);
  OnBadMessage();  // a status has no batches
}

void Source::OnReplayBatch(const Batch& batch) {
  const bool oldest_held = !std::exchange(request_.answered, true);
  ring_seen_ = true;
  if (batch.seq < next_) return OnReplyOverlap(batch);
  ++status_.replayed;
  seen_next_ = std::max(seen_next_, batch.seq + 1);
  const bool proven = request_.proven && !unproven_;
  if (request_.extended) {
    // The status at the end of the answer contains the epoch.
    if (!proven && !unproven_) Unprove(SourceReason::kUnproven);
  } else if (!proven || (oldest_held && batch.seq > next_)) {
    // The ring does not hold the overlap that would prove the publisher, or it does not hold the
    // batches of the hole.
    SkipTo(std::min(batch.seq, hold_back_.first_seq().value_or(batch.seq)),
           ResetReason::kLostBatches);
    request_.proven = true;
  }
  if (batch.seq > next_ || blocked()) hold_back_.Add(batch, request_.extended && !proven);
  if (batch.seq != next_ || blocked()) return;
  cuts_ = 0;
  Apply(batch);
  ApplyHeld();
}

void Source::OnReplyOverlap(const Batch& batch) {
  switch (applied_payloads_.Compare(batch)) {
    case FingerprintWindow::Match::kSame:
      unproven_ = false;
      request_.proven = true;
      return ApplyHeld();
    case FingerprintWindow::Match::kOther:
      return BeginEpochAnew();
    case FingerprintWindow::Match::kUnknown:
      return;
  }
}

void Source::OnReplyEnd(Frame payload) {
  const Request ended = request_;
  std::optional<PublisherStatus> status;
  if (ended.extended && !payload.empty()) {
    Result<PublisherStatus> parsed = residency::ParseStatus(payload);
    if (!parsed.ok()) return OnBadMessage();  // not an answer: the request times out
    status = std::move(parsed).value();
  }
  if (status) hold_back_.Prove();  // they have the epoch of the status
  if (ended.ask == Ask::kSnapshot) return OnSnapshotEnd(status, ended.resume);
  if (asks_for_repair()) return OnRepairEnd(status, ended.resume);
  if (ended.ask == Ask::kReplay) cuts_ = 0;
  CloseRequest();
  if (ended.extended && !status && extended_) {
    // The previous publisher supported KVX1, and the publisher of this answer does not. The live
    // connection may belong to the previous publisher.
    extended_ = false;
    asked_ = true;
    return BeginEpochAnew();
  }
  ended.ask == Ask::kStatus ? OnStatusEnd(status) : OnReplayEnd(ended, status);
}

void Source::OnStatusEnd(const std::optional<PublisherStatus>& status) {
  const bool first_look = !std::exchange(asked_, true);
  NoteLooked();
  if (!status) {
    if (first_look) OpenRequest(Ask::kReplay);
    return;
  }
  if (!TakeStatus(*status, /*proven=*/false)) return;
  // The live connection does not deliver batches that were published before it was established.
  if (first_look) seen_next_ = std::max(seen_next_, status->next_seq);
  if (has_hole() && next_ < status->first_held) Replace(SourceReason::kLostBatches);
  Settle();
  // A replay that overlaps the applied batches shows which epoch they belong to.
  if (!request_.open() && !epoch_) return OpenRequest(Ask::kReplay);
  if (!request_.open() && !wants_request()) NoteJoined();
  if (joined_) Audit(*status);
}

void Source::OnReplayEnd(const Request& ended, const std::optional<PublisherStatus>& status) {
  if (!status) return OnPlainReplayEnd(ended);
  asked_ = true;
  if (!TakeStatus(*status, ended.proven)) return;
  NoteJoined();
  if (!epoch_) Replace(SourceReason::kUnproven);
  if (has_hole() && next_ < status->first_held) Replace(SourceReason::kLostBatches);
  TrySkippingHole();
  Settle();
  Audit(*status);
}

void Source::OnPlainReplayEnd(const Request& ended) {
  NoteJoined();
  if (ended.wants_overlap && !ended.answered && (unproven_ || ring_seen_)) {
    // The newest batch of the ring is below an applied batch, so the ring belongs to a new epoch.
    return BeginEpochAnew();
  }
  if (unproven_) SkipTo(hold_back_.first_seq().value_or(next_), ResetReason::kLostBatches);
  TrySkippingHole();
  Settle();
}

// Handles the fields of any status. False: the status belongs to a new epoch, which was begun here.
bool Source::TakeStatus(const PublisherStatus& status, bool proven) {
  extended_ = true;
  last_epoch_ = status.epoch;
  const bool other = epoch_ ? *epoch_ != status.epoch : next_ > 0 && status.next_seq < next_;
  if (other || (!epoch_ && !applied_ && !IsOfConnection(status))) {
    BeginEpochAnew();
    return false;
  }
  if (epoch_ || proven || !applied_) {
    // Held batches may belong to the previous publisher.
    if (!epoch_ && !applied_) hold_back_.Clear();
    epoch_ = status.epoch;
    knows_state_ = status.has_digests;
    unproven_ = false;
  }
  ExpectUpTo(status.next_seq);
  ApplyHeld();
  return true;
}

// If the publisher had this epoch before the live connection was established, and still has it,
// this publisher is the peer of the live connection. Otherwise the peer may be the previous
// publisher, whose last batches may still be on their way.
bool Source::IsOfConnection(const PublisherStatus& status) const {
  return epoch_at_connect_ == status.epoch;
}

// The newest batches may still be on their way, so they count as missing only after kSettleMs.
void Source::ExpectUpTo(uint64_t seq) {
  if (seq <= seen_next_ || told_due_ms_ != kNever) return;
  told_next_ = seq;
  told_due_ms_ = now_ms_ + kSettleMs;
}

void Source::OnSnapshotPart(const Batch& batch) {
  if (!request_.resume) request_.resume = batch.seq;
  if (*request_.resume == batch.seq && sink_->AddToSnapshot(batch.payload)) return;
  request_.ask == Ask::kRepair ? FailRepair() : FailSnapshot();
}

void Source::OnSnapshotEnd(const std::optional<PublisherStatus>& status,
                           std::optional<uint64_t> resume) {
  if (!status) {
    extended_ = false;
    if (epoch_) return BeginEpochAnew();
    return FailSnapshot();
  }
  last_epoch_ = status->epoch;
  if (epoch_ ? *epoch_ != status->epoch : !IsOfConnection(*status)) return BeginEpochAnew();
  const bool usable = status->has_digests &&
                      resume.value_or(status->next_seq) == status->next_seq &&
                      status->next_seq >= next_;
  if (!status->has_digests) return GiveUpSnapshots();
  if (!usable || !sink_->CommitSnapshot(*status)) return FailSnapshot();
  request_.ask = Ask::kNone;  // committed: CloseRequest would drop it
  network_.CloseRequest();
  ++status_.snapshots;
  if (!epoch_) applied_payloads_.Clear();
  epoch_ = status->epoch;
  next_ = status_.first_seq = status->next_seq;
  seen_next_ = std::max(seen_next_, next_);
  NoteReplaced();
}

// Called when the state equals the publisher's state.
void Source::NoteReplaced() {
  applied_ = true;
  incomplete_ = doubtful_ = unproven_ = replace_ = false;
  repair_ = Repair::kNone;
  audit_.reset();
  tries_ = snapshot_tries_ = 0;
  snapshot_due_ms_ = now_ms_ + kSnapshotPauseMs;
  NoteJoined();
  ApplyHeld();
  Settle();
}

void Source::FailSnapshot() {
  ++status_.snapshot_failures;
  CloseRequest();
  if (++snapshot_tries_ >= kMaxTries || !extended_) {
    snapshot_tries_ = 0;
    Strike(why_);
    snapshot_due_ms_ = std::max(now_ms_ + kSnapshotPauseMs,
                                quarantine_.active() ? quarantine_.until_ms() : now_ms_);
    Forget(ResetReason::kDoubt);
  }
  Settle();
}

// The publisher gives no snapshots in the rest of its epoch, so missing batches stay missing.
void Source::GiveUpSnapshots() {
  ++status_.snapshot_failures;
  CloseRequest();
  snapshot_tries_ = 0;
  snapshot_due_ms_ = now_ms_ + kSnapshotPauseMs;
  knows_state_ = false;
  Forget(ResetReason::kLostBatches);
  Settle();
}

// The state in the answer is not older than the local state, because no batch was applied since the
// request. The batches between the two states are held or on their way.
void Source::OnRepairEnd(const std::optional<PublisherStatus>& status,
                         std::optional<uint64_t> resume) {
  if (!status) {
    extended_ = false;
    return BeginEpochAnew();
  }
  if (!TakeStatus(*status, /*proven=*/false)) return;
  const bool usable =
      status->has_digests && resume.value_or(status->next_seq) == status->next_seq &&
      status->next_seq >= next_ &&
      std::ranges::all_of(status->places,
                          [](const PlaceStatus& place) { return place.buckets.has_value(); });
  if (!usable) return FailRepair();
  request_.end = status;
  ApplyHeld();
  Settle();
}

// Called when the state is at the sequence number of the answer.
void Source::GoOnWithRepair() {
  const PublisherStatus status = *request_.end;
  if (request_.ask == Ask::kBuckets) {
    repair_buckets_ = sink_->DifferingBuckets(status);
    CloseRequest();
    // If no bucket differs, or every bucket, the whole state is requested.
    const bool some = repair_buckets_ != 0 && ~repair_buckets_ != 0;
    repair_ = some ? Repair::kFetch : Repair::kNone;
    return Settle();
  }
  if (!sink_->CommitSnapshot(status)) return FailRepair();
  request_ = {};  // committed: CloseRequest would drop it
  network_.CloseRequest();
  ++status_.repairs;
  NoteReplaced();
}

void Source::StopRepair() {
  repair_ = Repair::kNone;
  if (asks_for_repair()) CloseRequest();
}

void Source::FailRepair() {
  ++status_.repair_failures;
  StopRepair();
  Settle();
}

void Source::Audit(const PublisherStatus& status) {
  audit_due_ms_ = now_ms_ + Jittered(limits_.audit_interval_ms);
  audit_.reset();
  if (!status.has_digests || incomplete_ || doubtful_ || blocked()) return;
  if (next_ < status.next_seq) {
    audit_ = status;
  } else {
    CompareDigests(status);
    Settle();
  }
}

void Source::CompareDigests(const PublisherStatus& status) {
  ++status_.digest_checks;
  const DigestVerdict verdict = sink_->Compare(status);
  if (verdict == DigestVerdict::kEqual) quarantine_.Pardon(now_ms_);
  if (verdict != DigestVerdict::kDiffers) return;
  ++status_.digest_mismatches;
  Strike(SourceReason::kDigest);
  Replace(SourceReason::kDigest);
  if (replace_ && epoch_ && sink_->Repairs()) repair_ = Repair::kCompare;
}

void Source::OnContradiction(int64_t now_ms) {
  now_ms_ = now_ms;
  if (applied_) {
    Strike(SourceReason::kContradicted);
    Replace(SourceReason::kContradicted);
  }
  Settle();
  NoteState();
}

void Source::Strike(SourceReason why) {
  const bool was_active = quarantine_.active();
  quarantine_.Strike(why, now_ms_);
  if (!was_active && quarantine_.active()) ++status_.quarantines;
}

// Returns `ms` plus or minus up to 25 %.
int64_t Source::Jittered(int64_t ms) {
  if (jitter_ == 0) return ms;
  jitter_ = jitter_ * 6364136223846793005 + 1442695040888963407;
  return ms - ms / 4 + static_cast<int64_t>((jitter_ >> 33) % static_cast<uint64_t>(ms / 2 + 1));
}

void Source::OnTimer(int64_t now_ms) {
  now_ms_ = now_ms;
  if (!unheard_due_ms_) unheard_due_ms_ = now_ms + kUnheardMs;
  unheard_ = unheard_ || (!was_connected_ && now_ms >= *unheard_due_ms_);
  // Without digests the state cannot be verified, so the quarantine ends by time.
  if (quarantine_.active() && !can_compare()) quarantine_.Pardon(now_ms);
  if (now_ms >= told_due_ms_) {
    told_due_ms_ = kNever;
    seen_next_ = std::max(seen_next_, told_next_);
    Settle();
  }
  if (!request_.open() && wants_request() && now_ms >= retry_due_ms_) Settle();
  if (request_.open() && now_ms >= request_.deadline_ms) {
    ++status_.replay_timeouts;
    OnRequestTimeout();
  } else if (!request_.open() && connected_ && can_replay_) {
    const bool probe = probes() && now_ms >= probe_due_ms_;
    const bool audit = audits() && now_ms >= audit_due_ms_;
    if (wants_snapshot() && now_ms >= snapshot_due_ms_) {
      Replace(why_);
      Settle();
    } else if (probe || audit) {
      OpenRequest(extended_ ? Ask::kStatus : Ask::kReplay);
    }
  }
  // Silence is checked last: a request that was given up above may have been the only reason for
  // another state. A silent source must not become synced by that.
  if (hears_silence() && now_ms >= last_sign_ms_ + limits_.stale_ms) stale_ = true;
  NoteState();
}

void Source::OnRequestTimeout() {
  const Request over = request_;
  if (over.ask == Ask::kSnapshot) return FailSnapshot();
  if (asks_for_repair()) return FailRepair();
  TrySkippingHole();
  CloseRequest();
  const bool given_up = over.cut && cuts_ >= kMaxTries;
  // A batch exists that cannot be delivered. It is missing from the state, and its number is not
  // known.
  if (given_up && over.ask == Ask::kReplay && !has_hole() && (unproven_ || !incomplete_)) {
    extended_ ? Replace(SourceReason::kLostBatches)
              : SkipTo(hold_back_.first_seq().value_or(next_), ResetReason::kLostBatches);
    incomplete_ = incomplete_ || !replace_;
    cuts_ = 0;
  }
  Settle();
  if (request_.open()) return;
  if (given_up && joined_) {
    cuts_ = 0;
    NoteLooked();
  } else {
    OpenRequest(over.ask);
  }
}

int64_t Source::deadline_ms() const {
  int64_t due = hears_silence() ? last_sign_ms_ + limits_.stale_ms : kNever;
  due = std::min(due, told_due_ms_);
  if (!was_connected_ && !unheard_) due = std::min(due, unheard_due_ms_.value_or(kNever));
  if (quarantine_.active() && !can_compare()) due = std::min(due, quarantine_.until_ms());
  if (request_.open()) return std::min(due, request_.deadline_ms);
  if (!connected_ || !can_replay_) return due;
  if (wants_request()) due = std::min(due, retry_due_ms_);
  if (probes()) due = std::min(due, probe_due_ms_);
  if (audits()) due = std::min(due, audit_due_ms_);
  if (wants_snapshot()) due = std::min(due, snapshot_due_ms_);
  return due;
}

void Source::Apply(const Batch& batch) {
  KV_DCHECK(batch.seq == next_ && !blocked());
  const BatchResult result = sink_->Apply(Seq(batch.seq), batch.payload);
  applied_payloads_.Add(batch);
  if (!std::exchange(applied_, true)) status_.first_seq = batch.seq;
  joined_ = true;
  next_ = batch.seq + 1;
  ++status_.batches;
  // Unknown removes are evidence only if no batch is missing and the publisher supports KVX1: other
  // engines send removes without stores.
  if (result == BatchResult::kImpossible && extended_ && !incomplete_)
    Doubt(SourceReason::kContradicted);
  if (result == BatchResult::kComplete) incomplete_ = false;
  if (result == BatchResult::kIncomplete) {
    incomplete_ = true;
    why_ = SourceReason::kLostBatches;
  }
  if (result == BatchResult::kDoubtful) Doubt(SourceReason::kBadEvents);
  if (result == BatchResult::kRefuted) {
    Strike(SourceReason::kContradicted);
    Replace(SourceReason::kContradicted);
  }
  if (result == BatchResult::kUndecodable) Replace(SourceReason::kUndecodable);
  if (audit_ && audit_->next_seq == next_) CompareDigests(*std::exchange(audit_, std::nullopt));
}

void Source::Doubt(SourceReason reason) {
  doubtful_ = true;
  why_ = reason;
  audit_.reset();
}

// Apply may call SkipTo, and SkipTo calls ApplyHeld. Then the outer loop continues with the batches
// that are held at that time. Recursion would need stack for each held batch.
void Source::ApplyHeld() {
  if (std::exchange(applies_held_, true)) return;
  while (!blocked()) {
    const std::optional<HoldBack::Held> held = hold_back_.Take(next_);
    if (!held) break;
    Apply({held->seq, held->payload});
  }
  applies_held_ = false;
}

void Source::TrySkippingHole() {
  if (!has_hole()) return;
  if (std::exchange(tried_at_, next_) != next_) tries_ = 0;
  if (++tries_ < kMaxTries) return;
  tries_ = 0;
  if (extended_) return Replace(SourceReason::kLostBatches);
  SkipTo(hold_back_.first_seq().value_or(seen_next_), ResetReason::kLostBatches);
}

// The state must be replaced. If no snapshot can be requested, the state is forgotten.
void Source::Replace(SourceReason reason) {
  why_ = reason;
  audit_.reset();
  StopRepair();
  if (extended_ && knows_state_ && can_replay_ && now_ms_ >= snapshot_due_ms_) {
    replace_ = true;
  } else {
    if (!knows_state_) snapshot_due_ms_ = now_ms_ + kSnapshotPauseMs;
    Forget(reason == SourceReason::kLostBatches ? ResetReason::kLostBatches : ResetReason::kDoubt);
  }
}

void Source::Unprove(SourceReason reason) {
  unproven_ = true;
  why_ = reason;
}

// Continues with the batches that are available. A hole that cannot be filled is skipped.
void Source::Forget(ResetReason reason) {
  // Batches of an answer without its end may belong to another epoch.
  hold_back_.DropUnproven();
  const bool skip = reason == ResetReason::kLostBatches || !connected_ || !can_replay_;
  SkipTo(skip ? hold_back_.first_seq().value_or(std::max(next_, seen_next_)) : next_, reason);
}

// Gives up the batches before `seq`. REQUIRES: seq >= next_.
void Source::SkipTo(uint64_t seq, ResetReason reason) {
  KV_CHECK(seq >= next_);
  hold_back_.DropUnproven();
  if (std::exchange(applied_, false)) {
    status_.lost += seq - next_;
    ++status_.resets;
    sink_->Reset(reason);
  }
  if (seq > 0) incomplete_ = true;
  if (unproven_) {
    applied_payloads_.Clear();
    epoch_.reset();
  }
  if (seq > next_ || reason == ResetReason::kLostBatches) why_ = SourceReason::kLostBatches;
  unproven_ = replace_ = doubtful_ = false;
  audit_.reset();
  StopRepair();
  joined_ = true;
  tries_ = 0;
  next_ = seq;
  seen_next_ = std::max(seen_next_, next_);
  ApplyHeld();
}

void Source::BeginEpoch() {
  if (applied_) {
    ++status_.resets;
    sink_->Reset(ResetReason::kRestart);
  }
  CloseRequest();
  hold_back_.Clear();
  applied_payloads_.Clear();
  epoch_.reset();
  audit_.reset();
  next_ = live_next_ = seen_next_ = 0;
  joined_ = applied_ = incomplete_ = doubtful_ = unproven_ = replace_ = false;
  repair_ = Repair::kNone;
  recheck_ = prove_ = false;
  ring_seen_ = settled_ = false;
  knows_state_ = true;
  quarantine_.Reset();
  tries_ = snapshot_tries_ = cuts_ = 0;
  snapshot_due_ms_ = kAtOnce;
  told_due_ms_ = kNever;
}

// Makes the next request that the state needs. If no request is possible, gives up the missing
// batches.
void Source::Settle() {
  if (request_.end && request_.end->next_seq == next_) return GoOnWithRepair();
  if (request_.open() && !(replace_ && request_.ask != replacement())) return;
  if (can_replay_ && !connected_) return;
  if (!request_.open() && std::exchange(prove_, false)) Unprove(SourceReason::kUnproven);
  while (replace_ || unproven_ || has_hole()) {
    if (!can_replay_) {
      SkipTo(hold_back_.first_seq().value_or(std::max(next_, seen_next_)),
             ResetReason::kLostBatches);
      continue;
    }
    if (!MayAskAgain()) return;
    if (replace_) return OpenRequest(replacement());
    return OpenRequest(unproven_ && extended_ && epoch_ ? Ask::kStatus : Ask::kReplay);
  }
  fruitless_ = 0;
  if (can_replay_ && limits_.extension && !asked_) OpenRequest(Ask::kStatus);
}

// The request that replaces or repairs the state.
Source::Ask Source::replacement() const {
  if (repair_ == Repair::kCompare) return Ask::kBuckets;
  return repair_ == Repair::kFetch ? Ask::kRepair : Ask::kSnapshot;
}

// Requests without progress are made at growing intervals.
bool Source::MayAskAgain() {
  if (std::exchange(asked_from_, next_) != next_) fruitless_ = 0;
  if (fruitless_ >= kMaxTries && now_ms_ < retry_due_ms_) return false;
  ++fruitless_;
  const int doublings = std::clamp(fruitless_ - kMaxTries, 0, 6);
  retry_due_ms_ = now_ms_ + Jittered(std::min(kMinRetryMs << doublings, kMaxRetryMs));
  return true;
}

void Source::OpenRequest(Ask ask) {
  CloseRequest();
  if (ask != Ask::kStatus && !network_.TakeTurn()) {
    ++status_.replay_waits;
    request_.ask = ask;
    request_.waiting = true;
    request_.deadline_ms = kNever;
    return;
  }
  SendRequest(ask);
}

void Source::OnTurn(int64_t now_ms) {
  if (!request_.waiting) return;
  now_ms_ = now_ms;
  SendRequest(request_.ask);
  NoteState();
}

void Source::SendRequest(Ask ask) {
  request_ = {};
  request_.ask = ask;
  request_.deadline_ms = now_ms_ + limits_.replay_timeout_ms;
  request_.extended = ask != Ask::kReplay || extended_;
  ++status_.replays;
  const uint64_t start = next_ > 0 ? next_ - 1 : 0;
  switch (ask) {
    case Ask::kNone:
      return;
    case Ask::kStatus:
      return network_.Request(EncodeRequest({Verb::kStatus, 0, 0}));
    case Ask::kReplay:
      request_.wants_overlap = next_ > 0;
      request_.proven = !request_.wants_overlap && !extended_;
      return extended_ ? network_.Request(EncodeRequest({Verb::kReplay, 0, start}))
                       : network_.Request(EncodeSeq(start));
    case Ask::kSnapshot:
      sink_->BeginSnapshot();
      return network_.Request(EncodeRequest({Verb::kSnapshot, 0, ~uint64_t{0}}));
    case Ask::kBuckets:
      return network_.Request(EncodeRequest({Verb::kStatus, 0, 1}));
    case Ask::kRepair:
      sink_->BeginRepair(repair_buckets_);
      return network_.Request(EncodeRequest({Verb::kSnapshot, 0, repair_buckets_}));
  }
}

void Source::CloseRequest() {
  const Request closed = std::exchange(request_, {});
  hold_back_.DropUnproven();
  const bool fills = closed.ask == Ask::kSnapshot || closed.ask == Ask::kRepair;
  if (fills && !closed.waiting) sink_->DropSnapshot();
  if (closed.open()) network_.CloseRequest();
}

void Source::NoteJoined() {
  joined_ = true;
  probe_due_ms_ = now_ms_ + (std::exchange(settled_, true) ? limits_.probe_interval_ms : kSettleMs);
}

// A status request was answered or given up. The next probe and audit are due one interval later,
// even if there was no state to audit. Otherwise a source that waits for its retry would be probed
// continuously.
void Source::NoteLooked() {
  probe_due_ms_ = now_ms_ + limits_.probe_interval_ms;
  audit_due_ms_ = now_ms_ + Jittered(limits_.audit_interval_ms);
}

void Source::NoteSign() {
  last_sign_ms_ = now_ms_;
  stale_ = false;
}

void Source::NoteState() {
  const SourceState now = state();
  const bool sure = now == SourceState::kSynced || now == SourceState::kCleared;
  if (std::exchange(sure_, sure) && !sure) unsure_since_ms_ = now_ms_;
}

}  // namespace kvcast::stream
