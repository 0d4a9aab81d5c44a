// The functions of Source that decide when to make which request.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/stream/follow/source.h"

namespace kvcast::stream {

using residency::EncodeRequest;
using residency::Verb;

namespace {

// A publisher writes a snapshot of a million copies in a second. A busy machine needs longer, so
// the timeout is 5 s longer for each million copies.
constexpr uint64_t kCopiesPerMs = 200;
constexpr uint64_t kMaxSnapshotMs = 60'000;

}  // namespace

// Makes the next request that the state needs. If no request is possible, gives up the missing
// batches.
void Source::Settle() {
  if (request_.end && request_.end->next_seq == position_.next()) return GoOnWithRepair();
  // All other requests are more urgent than a challenge, which is sent again after a later status.
  if (request_.kind == Kind::kChallenge && wants_request()) CloseRequest();
  if (request_.open() && !(replica_.being_replaced() && request_.kind != remedy_request())) return;
  if (can_replay_ && !connection_.up()) return;
  if (!request_.open() && publisher_.proof.ApplyAfterRequest()) {
    replica_.SetReason(SourceReason::kUnproven);
  }
  while (replica_.being_replaced() || publisher_.proof.missing() || position_.has_hole()) {
    if (!can_replay_) {
      SkipTo(hold_back_.first_seq().value_or(position_.seen_next()), ResetReason::kLostBatches);
      continue;
    }
    if (!pacer_.MayAskAgain(position_.next(), now_ms_)) return;
    if (replica_.being_replaced()) return OpenRequest(remedy_request());
    return OpenRequest(publisher_.proof.missing() && publisher_.extended && publisher_.epoch
                           ? Kind::kStatus
                           : Kind::kReplay);
  }
  pacer_.NoteProgress();
  if (can_replay_ && limits_.extension && !publisher_.extended_known) OpenRequest(Kind::kStatus);
}

// The request that replaces or repairs the state.
Source::Kind Source::remedy_request() const {
  switch (replica_.remedy()) {
    case Remedy::kCompareBuckets:
      return Kind::kBuckets;
    case Remedy::kReplaceBuckets:
      return Kind::kRepair;
    case Remedy::kNone:
    case Remedy::kReplaceAll:
      break;
  }
  return Kind::kSnapshot;
}

void Source::OpenRequest(Kind kind) {
  CloseRequest();
  const bool is_short = kind == Kind::kStatus || kind == Kind::kChallenge;
  if (!network_.TakeTurn(is_short ? AnswerLength::kShort : AnswerLength::kLong)) {
    ++status_.replay_waits;
    request_.kind = kind;
    request_.waiting = true;
    request_.deadline_ms = kNever;
    return;
  }
  SendRequest(kind);
}

void Source::OnTurn(int64_t now_ms) {
  if (!request_.waiting) return;
  now_ms_ = now_ms;
  SendRequest(request_.kind);
  NoteState();
}

void Source::SendRequest(Kind kind) {
  request_ = {};
  request_.kind = kind;
  request_.deadline_ms = now_ms_ + reply_timeout_ms();
  request_.applied_next = position_.next();
  request_.extended = kind != Kind::kReplay || publisher_.extended;
  ++status_.replays;
  const uint64_t start = position_.next() > 0 ? position_.next() - 1 : 0;
  switch (kind) {
    case Kind::kNone:
      return;
    case Kind::kStatus:
      return network_.Request(EncodeRequest({Verb::kStatus, residency::kKnowsChallenges, 0}));
    case Kind::kReplay:
      request_.wants_overlap = position_.next() > 0;
      request_.proven = !request_.wants_overlap && !publisher_.extended;
      return publisher_.extended ? network_.Request(EncodeRequest({Verb::kReplay, 0, start}))
                                 : network_.Request(EncodeSeq(start));
    case Kind::kSnapshot:
      sink_->BeginSnapshot();
      return network_.Request(EncodeRequest({Verb::kSnapshot, 0, ~uint64_t{0}}));
    case Kind::kBuckets:
      return network_.Request(EncodeRequest({Verb::kStatus, 0, 1}));
    case Kind::kRepair:
      sink_->BeginRepair(replica_.buckets_to_replace());
      return network_.Request(EncodeRequest({Verb::kSnapshot, 0, replica_.buckets_to_replace()}));
    case Kind::kChallenge:
      publisher_.challenged = true;
      looks_.NoteChallenge(now_ms_);
      return network_.Request(EncodeRequest({Verb::kChallenge, 0, sink_->BeginChallenge()}));
  }
}

// The maximum time until the next reply to the request. A publisher copies and sorts its blocks
// before it sends the first part of a snapshot. Before that, it may write the snapshots of other
// readers.
int64_t Source::reply_timeout_ms() const {
  if (!request_.fills()) return limits_.replay_timeout_ms;
  const uint64_t snapshot_ms = std::min(publisher_.copies / kCopiesPerMs, kMaxSnapshotMs);
  return limits_.replay_timeout_ms + static_cast<int64_t>(snapshot_ms);
}

// Must be called after the end of an answer. The requests that the state needs come first.
void Source::ChallengeIfWanted() {
  if (request_.open() || !connection_.up() || !publisher_.answers_challenges) return;
  if (sink_->WantsChallenge()) OpenRequest(Kind::kChallenge);
}

void Source::CloseRequest() {
  const SourceRequest closed = std::exchange(request_, {});
  hold_back_.DropUnproven();
  if (closed.fills() && !closed.waiting) sink_->DropSnapshot();
  if (closed.open()) network_.CloseRequest();
}

void Source::OnTimer(int64_t now_ms) {
  now_ms_ = now_ms;
  connection_.CheckUnheard(now_ms, kUnheardMs);
  // Without digests the state cannot be verified, so the quarantine ends by time.
  if (quarantine_.active() && !can_compare()) quarantine_.NotePass(now_ms);
  if (position_.TakeAnnounced(now_ms)) Settle();
  if (!request_.open() && wants_request() && now_ms >= pacer_.retry_due_ms()) Settle();
  if (request_.open() && now_ms >= request_.deadline_ms) {
    ++status_.replay_timeouts;
    OnRequestTimeout();
  } else if (!request_.open() && connection_.up() && can_replay_) {
    const bool probe = probes() && now_ms >= looks_.probe_due_ms();
    const bool audit = audits() && now_ms >= looks_.audit_due_ms();
    if (wants_snapshot() && now_ms >= pacer_.snapshot_due_ms()) {
      Replace(replica_.reason());
      Settle();
    } else if (probe || audit) {
      OpenRequest(publisher_.extended ? Kind::kStatus : Kind::kReplay);
    } else if (challenges() && now_ms >= looks_.challenge_due_ms()) {
      OpenRequest(Kind::kChallenge);
    }
  }
  // Silence is checked last, because a request that is given up above may leave the state kSynced.
  // If the source is silent, its state must be kStale instead.
  if (hears_silence()) connection_.CheckSilence(now_ms, limits_.stale_ms);
  NoteState();
}

void Source::OnTurnOver(int64_t now_ms) {
  if (!request_.open() || request_.waiting) return;
  now_ms_ = now_ms;
  ++status_.replay_timeouts;
  OnRequestTimeout();
  NoteState();
}

void Source::OnRequestTimeout() {
  const SourceRequest over = request_;
  if (over.kind == Kind::kSnapshot) return FailSnapshot();
  if (request_.repairs()) return FailRepair();
  if (over.kind == Kind::kChallenge) {
    CloseRequest();
    return Settle();
  }
  TrySkippingHole();
  CloseRequest();
  const bool given_up = over.cut && pacer_.cuts() >= RequestPacer::kMaxTries;
  // A batch exists that cannot be delivered. It is missing from the state, and its number is not
  // known.
  if (given_up && over.kind == Kind::kReplay && !position_.has_hole() &&
      (publisher_.proof.missing() || !replica_.incomplete())) {
    publisher_.extended
        ? Replace(SourceReason::kLostBatches)
        : SkipTo(hold_back_.first_seq().value_or(position_.next()), ResetReason::kLostBatches);
    if (!replica_.being_replaced()) replica_.NoteMissing();
    pacer_.ForgetCuts();
  }
  Settle();
  if (request_.open()) return;
  if (given_up && replica_.joined()) {
    pacer_.ForgetCuts();
    NoteLooked();
  } else {
    OpenRequest(over.kind);
  }
}

int64_t Source::deadline_ms() const {
  int64_t due = hears_silence() ? connection_.silent_at_ms(limits_.stale_ms) : kNever;
  due = std::min(due, position_.announced_due_ms());
  due = std::min(due, connection_.unheard_at_ms());
  if (quarantine_.active() && !can_compare()) due = std::min(due, quarantine_.until_ms());
  if (request_.open()) return std::min(due, request_.deadline_ms);
  if (!connection_.up() || !can_replay_) return due;
  if (wants_request()) due = std::min(due, pacer_.retry_due_ms());
  if (probes()) due = std::min(due, looks_.probe_due_ms());
  if (audits()) due = std::min(due, looks_.audit_due_ms());
  if (challenges()) due = std::min(due, looks_.challenge_due_ms());
  if (wants_snapshot()) due = std::min(due, pacer_.snapshot_due_ms());
  return due;
}

void Source::NoteJoined() {
  replica_.Join();
  looks_.NoteJoined(now_ms_);
}

// A status request was answered, or a request was given up. The next probe and audit are due one
// interval later, even if there was no state to audit. Otherwise a source that waits for its retry
// would send probes continuously.
void Source::NoteLooked() {
  looks_.NoteProbe(now_ms_);
  ScheduleAudit();
}

void Source::ScheduleAudit() {
  looks_.AuditAt(now_ms_ + pacer_.Jittered(limits_.audit_interval_ms));
}

}  // namespace kvcast::stream
