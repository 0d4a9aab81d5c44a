// Source: what one publisher's stream means. Decides which batches to apply, when to ask for a
// replay or a snapshot, and when what was learned must be forgotten. No sockets, no clock: plain
// calls in, plain calls out.
//
// Terms. An epoch is one life of the publisher. A hole is a number that was not applied below one
// that was seen. The publisher is unproven where it may be another one than before: nothing is
// applied until a replayed batch equals one that was applied, or a status names the same epoch. The
// state is to be replaced where it may be wrong: nothing is applied until a snapshot has come, or
// the state was forgotten. Publishers that speak KVX1 are extended ones.
//
// A state whose digest differs is repaired: live batches are held back, the digests of all buckets
// are asked for, the state is brought to their number and compared with them, and what differs is
// asked for, and put in the place of what is held at the number of that answer. Where this does not
// lead to equal digests the state is replaced as a whole.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "kvcast/stream/replica_sink.h"
#include "kvcast/stream/subscriber.h"
#include "src/residency/extension.h"
#include "src/stream/follow/fingerprint.h"
#include "src/stream/follow/hold_back.h"
#include "src/stream/follow/quarantine.h"
#include "src/stream/follow/source_network.h"
#include "src/stream/net/frames.h"

namespace kvcast::stream {

struct SourceLimits {
  size_t hold_back_batches = 8192;
  size_t hold_back_bytes = 64u << 20;
  int64_t replay_timeout_ms = 2000;
  int64_t probe_interval_ms = 2000;   // 0: never
  int64_t stale_ms = 3000;            // of silence
  int64_t audit_interval_ms = 10000;  // between digests of an extended publisher; 0: never
  bool extension = false;  // the sink takes snapshots: ask whether the publisher has them
  // Of the source: spreads its audits and retries. 0: they come when they are due.
  uint64_t jitter_seed = 0;
};

// Thread-compatible. `now_ms` is any monotonic time.
class Source {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // Before any time, and still a time to reckon with.
  static constexpr int64_t kAtOnce = std::numeric_limits<int64_t>::min() / 2;
  // Replays without progress after which a hole is given up; snapshots after which the state is
  // forgotten.
  static constexpr int kMaxTries = 3;
  // A batch that was published while the subscription was on its way is in neither the first replay
  // nor the live stream: a second look this much later finds it.
  static constexpr int64_t kSettleMs = 100;
  // Between requests that bring nothing, growing.
  static constexpr int64_t kMinRetryMs = 100;
  static constexpr int64_t kMaxRetryMs = 5000;
  // Between a snapshot, come or given up, and the next one.
  static constexpr int64_t kSnapshotPauseMs = 5000;

  // `sink` and `network` must outlive the source.
  Source(const SourceLimits& limits, bool can_replay, ReplicaSink& sink, SourceNetwork& network);
  // From now on the sink is not called; batches count as applied.
  void Mute();

  // A live connection is up: the first one, or a new one. Messages of the one before are over.
  void OnConnected(int64_t now_ms);
  // It is down. What it brought before may still be fed; replies are ignored until OnConnected,
  // they could be those of another publisher.
  void OnDisconnected();
  // Messages in the order in which they were received.
  void OnLive(const Batch& batch, int64_t now_ms);
  void OnReply(const Reply& reply, int64_t now_ms);
  // The turn that take_turn did not give has come.
  void OnTurn(int64_t now_ms);
  // The connection that brings the replies has ended. What it brought before may still be fed.
  void OnReplyCut(int64_t now_ms);
  void OnBadMessage() { ++status_.bad_messages; }
  // The state is impossible, says somebody who knows: it is replaced or forgotten.
  void OnContradiction(int64_t now_ms);
  // To be called at deadline_ms(), or any time; the first call is the beginning.
  void OnTimer(int64_t now_ms);

  int64_t deadline_ms() const;
  SourceStatus status(int64_t now_ms) const;
  // Whether its weight stays as it is.
  bool is_sure() const { return sure_; }
  const HoldBack& hold_back() const { return hold_back_; }

 private:
  enum class Ask : uint8_t { kNone, kStatus, kReplay, kSnapshot, kBuckets, kRepair };
  // What comes next of a repair; kNone: the state is not to be repaired but replaced.
  enum class Repair : uint8_t { kNone, kCompare, kFetch };
  struct Request {
    Ask ask = Ask::kNone;
    bool waiting = false;  // for its turn; nothing was sent
    bool extended = false;
    bool answered = false;           // a batch came
    bool cut = false;                // what has not come will not
    bool wants_overlap = false;      // starts at a batch that was applied before
    bool proven = true;              // its batches are known to be of our epoch
    std::optional<uint64_t> resume;  // number of the snapshot's parts
    // Of a repair, which goes on when the state is as far.
    std::optional<residency::PublisherStatus> end;
    int64_t deadline_ms = 0;

    bool open() const { return ask != Ask::kNone; }
  };

  void HandleLive(const Batch& batch);
  void OnLiveStepBack(const Batch& batch);
  void OnLiveOverlap(const Batch& batch);
  void OnReplyBatch(const Batch& batch);
  void OnReplayBatch(const Batch& batch);
  void OnReplyOverlap(const Batch& batch);
  void OnSnapshotPart(const Batch& batch);
  void OnReplyEnd(Frame payload);
  void OnStatusEnd(const std::optional<residency::PublisherStatus>& status);
  void OnReplayEnd(const Request& ended, const std::optional<residency::PublisherStatus>& status);
  void OnPlainReplayEnd(const Request& ended);
  void OnSnapshotEnd(const std::optional<residency::PublisherStatus>& status,
                     std::optional<uint64_t> resume);
  bool TakeStatus(const residency::PublisherStatus& status, bool proven);
  bool IsOfConnection(const residency::PublisherStatus& status) const;
  void ExpectUpTo(uint64_t seq);
  void Audit(const residency::PublisherStatus& status);
  void CompareDigests(const residency::PublisherStatus& status);
  void FailSnapshot();
  void GiveUpSnapshots();
  void OnRepairEnd(const std::optional<residency::PublisherStatus>& status,
                   std::optional<uint64_t> resume);
  void GoOnWithRepair();
  void StopRepair();
  void FailRepair();
  void NoteReplaced();
  void Strike(SourceReason why);
  int64_t Jittered(int64_t ms);

  void Apply(const Batch& batch);
  void ApplyHeld();
  void SkipTo(uint64_t seq, ResetReason reason);
  void Forget(ResetReason reason);
  void TrySkippingHole();
  void OnRequestTimeout();
  void Doubt(SourceReason reason);
  void Replace(SourceReason reason);
  void Unprove(SourceReason reason);
  void BeginEpoch();
  void BeginEpochAnew();
  void BeginEpochWith(const Batch& batch);
  void Settle();
  bool MayAskAgain();
  void OpenRequest(Ask ask);
  void SendRequest(Ask ask);
  void CloseRequest();
  void NoteJoined();
  void NoteLooked();
  void NoteSign();
  void NoteState();

  bool wants_request() const {
    return can_replay_ && connected_ && (replace_ || unproven_ || has_hole());
  }
  bool has_hole() const { return next_ < seen_next_; }
  // A publisher without digests has no snapshots for the rest of its life: missing batches stay
  // missing, and a state that may be wrong is forgotten.
  bool wants_snapshot() const { return extended_ && (doubtful_ || (incomplete_ && knows_state_)); }
  bool catches_up() const { return request_.end && next_ < request_.end->next_seq; }
  bool blocked() const {
    return unproven_ || (replace_ && !catches_up()) || request_.ask == Ask::kSnapshot;
  }
  bool asks_for_repair() const {
    return request_.ask == Ask::kBuckets || request_.ask == Ask::kRepair;
  }
  Ask replacement() const;
  bool probes() const { return can_replay_ && limits_.probe_interval_ms > 0; }
  bool audits() const { return extended_ && limits_.audit_interval_ms > 0; }
  bool can_compare() const { return audits() && knows_state_; }
  bool hears_silence() const { return connected_ && joined_ && !stale_ && (probes() || extended_); }
  FingerprintWindow::Match CompareWithKnown(const Batch& batch) const;
  SourceState state() const;
  SourceReason reason() const;

  const SourceLimits limits_;
  const bool can_replay_;
  ReplicaSink* sink_;
  SourceNetwork& network_;

  uint64_t next_ = 0;        // first number not applied
  uint64_t live_next_ = 0;   // above the highest number seen live
  uint64_t seen_next_ = 0;   // above the highest number seen at all
  bool joined_ = false;      // this epoch's first batch is known
  bool applied_ = false;     // there is a state: something was applied since the last reset
  bool incomplete_ = false;  // the state lacks batches of this epoch
  bool doubtful_ = false;    // the state lacks events that could not be read, or is contradicted
  bool unproven_ = false;
  bool replace_ = false;
  Repair repair_ = Repair::kNone;
  uint64_t repair_buckets_ = 0;  // of kFetch
  bool recheck_ = false;         // becomes unproven with the next live batch
  bool prove_ = false;           // becomes unproven when the open request has ended
  bool ring_seen_ = false;       // the publisher has answered with a batch: its ring holds some
  bool stale_ = false;
  bool connected_ = false;
  bool was_connected_ = false;
  bool unheard_ = false;  // no first connection until unheard_due_ms_
  std::optional<int64_t> unheard_due_ms_;
  bool settled_ = false;     // the second look at this connection's publisher was scheduled
  bool extended_ = false;    // the publisher has answered with a status
  bool knows_state_ = true;  // an extended one: its latest status had digests
  bool asked_ = false;       // whether it is extended is known
  std::optional<residency::Epoch> epoch_;
  std::optional<residency::Epoch> last_epoch_;        // in any status
  std::optional<residency::Epoch> epoch_at_connect_;  // the last one before the live connection
  std::optional<residency::PublisherStatus> audit_;   // to be compared once the state is that far
  SourceReason why_ = SourceReason::kNone;            // of the latest doubt
  int tries_ = 0;                                     // to fill the hole at tried_at_
  uint64_t tried_at_ = 0;
  int cuts_ = 0;                    // answers cut off in a row, next_ where it was
  int fruitless_ = 0;               // requests in a row that left next_ where it was
  uint64_t asked_from_ = 0;         // next_ at the last one
  int64_t retry_due_ms_ = kAtOnce;  // not before
  int snapshot_tries_ = 0;
  int64_t now_ms_ = 0;
  int64_t probe_due_ms_ = kAtOnce;
  int64_t audit_due_ms_ = kAtOnce;
  int64_t snapshot_due_ms_ = kAtOnce;  // not before
  uint64_t jitter_;
  // What a status has told is above seen_next_: due to come live by then.
  uint64_t told_next_ = 0;
  int64_t told_due_ms_ = kNever;
  int64_t last_sign_ms_ = 0;  // of life
  int64_t unsure_since_ms_ = 0;
  bool sure_ = false;
  Request request_;
  bool applies_held_ = false;  // ApplyHeld runs
  Quarantine quarantine_;
  HoldBack hold_back_;
  FingerprintWindow applied_payloads_;
  SourceStatus status_;
};

}  // namespace kvcast::stream
