// Source: the protocol state machine for the stream of one publisher. It decides which batches to
// apply, when to request a replay or a snapshot, and when to forget the state. It has no sockets
// and no clock: calls come in, and calls go out.
//
// Terms:
//   epoch      The time between one start of the publisher and its end.
//   hole       A sequence number that was not applied, below a number that was seen.
//   unproven   The publisher may be another one than before. No batch is applied until a replayed
//              batch equals an applied batch, or a status contains the same epoch.
//   replace    The state may be wrong. No batch is applied until a snapshot was committed or the
//              state was forgotten.
//   extended   The publisher supports KVX1.
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
  int64_t stale_ms = 3000;            // maximum silence
  int64_t audit_interval_ms = 10000;  // between two digests of a KVX1 publisher; 0: never
  bool extension = false;             // the sink takes snapshots: ask the publisher for KVX1
  // Differs between sources, and spreads their audits and retries. 0: audits and retries are made
  // exactly when they are due.
  uint64_t jitter_seed = 0;
};

// Thread-compatible. `now_ms` is any monotonic time.
class Source {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // Sentinel for "due now". Half of the minimum, so that adding an interval cannot overflow.
  static constexpr int64_t kAtOnce = std::numeric_limits<int64_t>::min() / 2;
  // Number of replays without progress after which a hole is given up. Number of failed snapshots
  // after which the state is forgotten.
  static constexpr int kMaxTries = 3;
  // A batch that is published while the subscription is on its way is neither in the first replay
  // nor in the live stream. A second probe, this many ms later, finds it.
  static constexpr int64_t kSettleMs = 100;
  // Range of the pause between requests without progress. The pause doubles each time.
  static constexpr int64_t kMinRetryMs = 100;
  static constexpr int64_t kMaxRetryMs = 5000;
  // Pause after a snapshot was committed or given up, before the next snapshot.
  static constexpr int64_t kSnapshotPauseMs = 5000;

  // `sink` and `network` must outlive the source.
  Source(const SourceLimits& limits, bool can_replay, ReplicaSink& sink, SourceNetwork& network);
  // After this call the sink is not called. Batches still count as applied.
  void Mute();

  // A live connection was established: the first one, or a new one. Messages of the previous
  // connection must not be fed after this call.
  void OnConnected(int64_t now_ms);
  // The live connection was lost. Messages that it received before may still be fed. Replies are
  // ignored until OnConnected, because they may belong to another publisher.
  void OnDisconnected();
  // Messages must be fed in the order of their arrival.
  void OnLive(const Batch& batch, int64_t now_ms);
  void OnReply(const Reply& reply, int64_t now_ms);
  // SourceNetwork::TakeTurn returned false before, and the turn is free for this source.
  void OnTurn(int64_t now_ms);
  // The connection of the open request has ended. Replies that it received before may still be fed.
  void OnReplyCut(int64_t now_ms);
  void OnBadMessage() { ++status_.bad_messages; }
  // The caller found that the state is impossible. The state is replaced or forgotten.
  void OnContradiction(int64_t now_ms);
  // Must be called at deadline_ms(), and may be called at any time. The first call starts the time
  // kUnheardMs.
  void OnTimer(int64_t now_ms);

  int64_t deadline_ms() const;
  SourceStatus status(int64_t now_ms) const;
  // True: the weight does not change with time.
  bool is_sure() const { return sure_; }
  const HoldBack& hold_back() const { return hold_back_; }

 private:
  enum class Ask : uint8_t { kNone, kStatus, kReplay, kSnapshot, kBuckets, kRepair };
  // The next step of a repair. kNone: the state is not repaired but replaced completely.
  enum class Repair : uint8_t { kNone, kCompare, kFetch };
  struct Request {
    Ask ask = Ask::kNone;
    bool waiting = false;  // it waits for its turn; no request was sent
    bool extended = false;
    bool answered = false;           // a batch arrived
    bool cut = false;                // the connection ended: no further replies arrive
    bool wants_overlap = false;      // starts at an applied batch
    bool proven = true;              // its batches belong to the current epoch
    std::optional<uint64_t> resume;  // sequence number of the snapshot's parts
    // Repairs only: the status at the end of the answer. The repair continues when the state is at
    // the sequence number of this status.
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
  // A publisher without digests gives no snapshots in the rest of its epoch. Missing batches then
  // stay missing, and a suspect state is forgotten.
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

  uint64_t next_ = 0;        // the first number that was not applied
  uint64_t live_next_ = 0;   // one above the highest number seen live
  uint64_t seen_next_ = 0;   // one above the highest number seen at all
  bool joined_ = false;      // the first batch of this epoch is known
  bool applied_ = false;     // there is a state: data was applied since the last reset
  bool incomplete_ = false;  // batches of this epoch are missing from the state
  bool doubtful_ = false;    // the state is suspect: it lacks events, or is contradicted
  bool unproven_ = false;
  bool replace_ = false;
  Repair repair_ = Repair::kNone;
  uint64_t repair_buckets_ = 0;  // kFetch: the buckets to request
  bool recheck_ = false;         // the next new live batch sets unproven_
  bool prove_ = false;           // the end of the open request sets unproven_
  bool ring_seen_ = false;       // the publisher replied with a batch: its ring is not empty
  bool stale_ = false;
  bool connected_ = false;
  bool was_connected_ = false;
  bool unheard_ = false;  // no first connection before unheard_due_ms_
  std::optional<int64_t> unheard_due_ms_;
  bool settled_ = false;     // the second probe of this connection was scheduled
  bool extended_ = false;    // the publisher replied with a status
  bool knows_state_ = true;  // KVX1: the latest status had digests
  bool asked_ = false;       // it is known whether the publisher supports KVX1
  std::optional<residency::Epoch> epoch_;
  std::optional<residency::Epoch> last_epoch_;        // in the latest status
  std::optional<residency::Epoch> epoch_at_connect_;  // last_epoch_ at the latest OnConnected
  std::optional<residency::PublisherStatus> audit_;   // to compare when the state is at its number
  SourceReason why_ = SourceReason::kNone;            // the latest reason to suspect the state
  int tries_ = 0;                                     // attempts to fill the hole at tried_at_
  uint64_t tried_at_ = 0;
  int cuts_ = 0;                    // consecutive answers that were cut off, without progress
  int fruitless_ = 0;               // consecutive requests without progress of next_
  uint64_t asked_from_ = 0;         // next_ at the latest of them
  int64_t retry_due_ms_ = kAtOnce;  // no such request before this time
  int snapshot_tries_ = 0;
  int64_t now_ms_ = 0;
  int64_t probe_due_ms_ = kAtOnce;
  int64_t audit_due_ms_ = kAtOnce;
  int64_t snapshot_due_ms_ = kAtOnce;  // no such request before this time
  uint64_t jitter_;
  // A status announced the batches below told_next_, which is above seen_next_. Batches that have
  // not arrived live at told_due_ms_ are missing.
  uint64_t told_next_ = 0;
  int64_t told_due_ms_ = kNever;
  int64_t last_sign_ms_ = 0;  // when the latest message or connection came
  int64_t unsure_since_ms_ = 0;
  bool sure_ = false;
  Request request_;
  bool applies_held_ = false;  // ApplyHeld is running
  Quarantine quarantine_;
  HoldBack hold_back_;
  FingerprintWindow applied_payloads_;
  SourceStatus status_;
};

}  // namespace kvcast::stream
