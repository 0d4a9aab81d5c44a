// Source: the protocol state machine for the stream of one publisher. It decides which batches to
// apply, when to request a replay or a snapshot, and when to forget the state. It has no sockets
// and no clock. Messages and times are arguments. Source calls SourceNetwork and ReplicaSink.
//
// Terms:
//   epoch      The time between one start of the publisher and its end.
//   hole       A sequence number that was not applied, below a number that was seen.
//   unproven   A new publisher may have replaced the old one. No batch is applied until a replayed
//              batch equals an applied batch, or a status contains the same epoch.
//   suspect    The state may be wrong. Batches are still applied.
//   replaced   The state must be replaced, and the replacement has not ended. No batch is applied
//              until a snapshot was committed or the state was forgotten. Exception: the repair
//              below.
//   extended   The publisher supports KVX1 (see src/residency/extension.h).
//
// The members LiveConnection, KnownPublisher, StreamPosition, ReplicaState and SourceRequest hold
// the present state. RequestPacer and LookSchedule hold the times of requests. The functions of
// Source make the decisions.
//
// A state whose digest differs is repaired in these steps:
//   1. Live batches are held back, and the digests of all buckets are requested.
//   2. When the state is at the sequence number of the answer, its buckets are compared.
//   3. The buckets that differ are requested.
//   4. When the state is at the sequence number of that answer, these buckets are replaced.
// If the digests are not equal after that, the whole state is replaced.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "kvcast/stream/replica_sink.h"
#include "kvcast/stream/saved_position.h"
#include "kvcast/stream/subscriber.h"
#include "src/residency/extension.h"
#include "src/stream/follow/fingerprint.h"
#include "src/stream/follow/hold_back.h"
#include "src/stream/follow/known_publisher.h"
#include "src/stream/follow/live_connection.h"
#include "src/stream/follow/look_schedule.h"
#include "src/stream/follow/quarantine.h"
#include "src/stream/follow/replica_state.h"
#include "src/stream/follow/request_pacer.h"
#include "src/stream/follow/source_network.h"
#include "src/stream/follow/source_request.h"
#include "src/stream/follow/state_weight.h"
#include "src/stream/follow/stream_position.h"
#include "src/stream/net/frames.h"

namespace kvcast::stream {

struct SourceLimits {
  size_t hold_back_batches = 8192;
  size_t hold_back_bytes = 64u << 20;
  int64_t replay_timeout_ms = 2000;
  int64_t probe_interval_ms = 2000;   // 0: never
  int64_t stale_ms = 3000;            // without a message for this time, the state is kStale
  int64_t audit_interval_ms = 10000;  // between audits of a KVX1 publisher; 0: never
  bool extension = false;             // the sink takes snapshots; the source sends KVX1 requests
  // Differs between sources, and spreads their audits and retries. 0: audits and retries are made
  // exactly when they are due.
  uint64_t jitter_seed = 0;
};

// Thread-compatible. `now_ms` is any monotonic time.
class Source {
 public:
  // `sink` and `network` must outlive the source.
  Source(const SourceLimits& limits, bool can_replay, ReplicaSink& sink, SourceNetwork& network);
  // The sink holds a saved state that belongs to this position. No batch is applied, and the weight
  // is 0, until a proof shows that the publisher has not restarted. If the publisher has restarted,
  // the sink is reset. REQUIRES: no function was called before.
  void Resume(const SavedPosition& position);
  // The position to save with the state of the sink. nullopt: the sink has no state, or its state
  // may be wrong.
  std::optional<SavedPosition> Position() const;
  // After this call the sink is not called. Batches still count as applied.
  void Mute();

  // A live connection was established: the first one, or a new one. Messages of the previous
  // connection must not be fed after this call.
  void OnConnected(int64_t now_ms);
  // The live connection was lost. Messages that were received before may still be fed. Replies are
  // ignored until OnConnected, because they may belong to another publisher.
  void OnDisconnected();
  // Messages must be fed in the order of their arrival.
  void OnLive(const Batch& batch, int64_t now_ms);
  void OnReply(const Reply& reply, int64_t now_ms);
  // The source waited for a turn (SourceNetwork::TakeTurn returned false), and has the turn now.
  void OnTurn(int64_t now_ms);
  // The source has had its turn for too long, and other sources wait. The open request is given up.
  // If the request is still needed, it is made again in a later turn.
  void OnTurnOver(int64_t now_ms);
  // The connection of the open request has ended. Replies that were received before may still be
  // fed.
  void OnReplyCut(int64_t now_ms);
  void OnBadMessage() { ++status_.bad_messages; }
  // The caller found that the state is impossible. The state is replaced with a snapshot. If no
  // snapshot can be requested, the state is forgotten.
  void OnContradiction(int64_t now_ms);
  // Must be called at deadline_ms(), and may be called at any time. If no live connection is
  // established within kUnheardMs after the first call, the reason becomes kUnheard.
  void OnTimer(int64_t now_ms);

  int64_t deadline_ms() const;
  SourceStatus status(int64_t now_ms) const;
  // True: the weight does not change with time.
  bool is_sure() const { return weight_.is_sure(); }
  const HoldBack& hold_back() const { return hold_back_; }

 private:
  using Kind = SourceRequest::Kind;
  using Remedy = ReplicaState::Remedy;

  // Connections (source.cc).
  void JoinAnew();

  // Live messages (source.cc).
  void HandleLive(const Batch& batch);
  void OnLiveStepBack(const Batch& batch);
  void OnLiveOverlap(const Batch& batch);
  FingerprintWindow::Match CompareWithKnown(const Batch& batch) const;

  // Replies (source_replies.cc).
  void OnReplyBatch(const Batch& batch);
  void OnReplayBatch(const Batch& batch);
  void OnReplyOverlap(const Batch& batch);
  void OnReplyEnd(Frame payload);
  void OnStatusEnd(const SourceRequest& ended,
                   const std::optional<residency::PublisherStatus>& status);
  void OnReplayEnd(const SourceRequest& ended,
                   const std::optional<residency::PublisherStatus>& status);
  void OnPlainReplayEnd(const SourceRequest& ended);
  bool TakeStatus(const residency::PublisherStatus& status, const SourceRequest& request);
  void OnChallengeAnswer(const Batch& batch);
  void OnSnapshotPart(const Batch& batch);
  void OnSnapshotEnd(const std::optional<residency::PublisherStatus>& status,
                     std::optional<uint64_t> resume);
  void FailSnapshot();
  void GiveUpSnapshots();
  void OnRepairEnd(const std::optional<residency::PublisherStatus>& status,
                   std::optional<uint64_t> resume);

  // The copy of the state (source_replica.cc).
  void Apply(const Batch& batch);
  void ApplyHeld();
  void Audit(const residency::PublisherStatus& status);
  void CompareDigests(const residency::PublisherStatus& status);
  void NoteFailure(SourceReason why);
  void DropTooLarge();
  void Replace(SourceReason reason);
  void GoOnWithRepair();
  void StopRepair();
  void FailRepair();
  void NoteReplaced();
  void Unprove(SourceReason reason);
  void TrySkippingHole();
  void Forget(ResetReason reason);
  void SkipTo(uint64_t seq, ResetReason reason);
  void BeginEpoch();
  void BeginEpochAnew();
  void BeginEpochWith(const Batch& batch);

  // Requests and timers (source_requests.cc).
  void Settle();
  Kind remedy_request() const;
  void OpenRequest(Kind kind);
  void SendRequest(Kind kind);
  int64_t reply_timeout_ms() const;
  void CloseRequest();
  void ChallengeIfWanted();
  void OnRequestTimeout();
  void NoteJoined();
  void NoteLooked();
  void ScheduleAudit();
  bool wants_request() const {
    return can_replay_ && connection_.up() &&
           (replica_.being_replaced() || publisher_.proof.missing() || position_.has_hole());
  }
  // True: OnTimer calls Replace, which requests a snapshot. A publisher without digests gives no
  // snapshots in the rest of its epoch: Replace then forgets a suspect state, and missing batches
  // stay missing.
  bool wants_snapshot() const {
    return publisher_.extended && !replica_.being_replaced() &&
           (replica_.suspect() || (replica_.incomplete() && publisher_.gives_digests));
  }
  // True: a repair waits until the state is at the sequence number of the repair's answer.
  bool catches_up() const { return request_.end && position_.next() < request_.end->next_seq; }
  bool blocked() const {
    return publisher_.proof.missing() || (replica_.being_replaced() && !catches_up()) ||
           request_.kind == Kind::kSnapshot;
  }
  bool probes() const { return can_replay_ && limits_.probe_interval_ms > 0; }
  bool audits() const { return publisher_.extended && limits_.audit_interval_ms > 0; }
  bool challenges() const {
    return probes() && publisher_.answers_challenges && sink_->WantsChallenge();
  }
  bool can_compare() const { return audits() && publisher_.gives_digests; }
  // True: the source must notice if no message arrives for stale_ms.
  bool hears_silence() const {
    return connection_.state() == LiveConnection::State::kUp && replica_.joined() &&
           (probes() || publisher_.extended);
  }

  // The state (source_status.cc).
  SourceState state() const;
  SourceReason reason() const;
  void NoteState() { weight_.Note(state(), now_ms_); }

  const SourceLimits limits_;
  const bool can_replay_;
  ReplicaSink* sink_;
  SourceNetwork& network_;

  int64_t now_ms_ = 0;  // of the latest call
  LiveConnection connection_;
  KnownPublisher publisher_;
  StreamPosition position_;
  ReplicaState replica_;
  SourceRequest request_;
  RequestPacer pacer_;
  LookSchedule looks_;
  Quarantine quarantine_;
  HoldBack hold_back_;
  FingerprintWindow applied_payloads_;
  bool applies_held_ = false;  // ApplyHeld is running
  StateWeight weight_;
  SourceStatus status_;  // counters and first_seq; status() sets the other fields
};

}  // namespace kvcast::stream
