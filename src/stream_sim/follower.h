// Follower: the subscriber side of one publisher. It uses the real decoder, source state machine,
// index and snapshot handling, and checks the guarantees at every call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "kvcast/router/prefix_index.h"
#include "router/replica/replica.h"
#include "src/stream/follow/source.h"
#include "src/stream_sim/publisher.h"
#include "src/stream_sim/saved_index.h"
#include "src/stream_sim/violation.h"

namespace kvcast::sim {

class Follower final : public ReplicaSink {
 public:
  // Only the checks read `publisher`. All reference arguments must outlive the follower.
  Follower(WorkerId worker, const stream::SourceLimits& limits, bool can_replay,
           const SimPublisher& publisher, PrefixIndex& index, Record& record);

  // Must be called once, before the first check.
  void Watch(const stream::Source& source) { source_ = &source; }
  SourceStatus status(int64_t now_ms) const { return source_->status(now_ms); }

  // The state of the follower and of its worker in the index, as a router saves it.
  struct Saved {
    SavedPosition position;
    SavedIndex index;
    std::optional<int> life;
    bool damaged = false;
    bool was_damaged = false;
  };
  // nullopt: the state cannot be saved.
  std::optional<Saved> Save() const;
  // The process of the follower ends, and a new one starts. nullptr: without a saved state. The
  // caller must call Watch before the next check.
  void Restart(int64_t now_ms, const Saved* saved);

  // Must be called after every call into the source.
  void Check(int64_t now_ms);
  // Must be called after a time without faults (kDetectionMs). A synced source must have reached
  // `next_seq` of `life`, or a later life.
  void CheckDetected(int64_t now_ms, int life, uint64_t next_seq);
  // NoteHeard: the source gets a message from the publisher, or a connection to the publisher.
  // NoteConnected: the source gets a connection. NoteLive: the source gets a live message.
  void NoteHeard(int64_t now_ms) { heard_ms_ = now_ms; }
  void NoteConnected() { silent_since_connect_ = true; }
  void NoteLive() { silent_since_connect_ = false; }
  // Checks the source after it got the live batch of this number: the batch must be applied, held,
  // or known to be missing.
  void CheckTaken(int64_t now_ms, uint64_t seq);
  // Must be called after the timers have run. If the source received no message for stale_ms, it
  // must not be synced.
  void CheckSilence(int64_t now_ms);
  // Compares all held entries with the oracle. If the digest has not changed since the previous
  // comparison, only every eighth call compares, unless `always`.
  void CheckContent(int64_t now_ms, bool always = false);
  // Checks the source after a long time without faults: its state must equal the state of the
  // publisher. Without replay, two other results are allowed. Lost batches stay lost, and a loss at
  // the end of the stream is never detected. If the publisher was silent since the last reconnect,
  // the state stays suspect.
  void CheckConverged(int64_t now_ms);

  // Changes entries of the index. The source gets no message about the change.
  void Damage(Random& random, int64_t entries);
  bool can_replay() const { return can_replay_; }
  // The life whose state is held. nullopt: no batch was applied since the last reset.
  std::optional<int> life() const { return life_; }
  // The next sequence number of the life.
  uint64_t next_seq() const { return next_; }
  void CountReached(int64_t now_ms) const;

 private:
  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override;
  void Reset(ResetReason reason) override;
  bool TakesSnapshots() const override { return true; }
  void BeginSnapshot() override;
  bool AddToSnapshot(std::span<const uint8_t> payload) override;
  bool CommitSnapshot(const PublisherStatus& status) override;
  void DropSnapshot() override { replica_->DropSnapshot(); }
  DigestVerdict Compare(const PublisherStatus& status) override;
  bool Repairs() const override { return true; }
  uint64_t DifferingBuckets(const PublisherStatus& status) override;
  void BeginRepair(uint64_t buckets) override;
  bool WantsChallenge() const override { return !answered_; }
  uint64_t BeginChallenge() override { return ++nonce_; }
  void OnChallengeAnswer(std::span<const uint8_t> payload) override;
  void CheckOrder(double ts, uint64_t seq);
  void CheckAnswered(int life) const;
  void Fail(const std::string& guarantee, const std::string& what) const;

  const WorkerId worker_;
  const stream::SourceLimits limits_;
  const bool can_replay_;
  const SimPublisher& publisher_;
  PrefixIndex& index_;
  Record& record_;
  std::optional<router::Replica> replica_;
  EventBatch batch_;
  std::optional<int> life_;
  uint64_t next_ = 0;
  uint64_t nonce_ = 0;  // of the latest challenge
  // The life that answered a challenge. nullopt: no answer since the last restart.
  std::optional<int> answered_;
  int64_t heard_ms_ = 0;
  bool silent_since_connect_ = true;
  bool repairs_ = false;  // true after BeginRepair, false after BeginSnapshot
  bool damaged_ = false;
  // The state was damaged at some time. Recorded digests may contain the damage even after the
  // repair.
  bool was_damaged_ = false;
  HoldingsSum visible_;   // the sum at the last check
  HoldingsSum compared_;  // the sum at the last comparison of the content
  int unchanged_ = 0;     // calls of CheckContent since the last comparison
  SourceState last_state_ = SourceState::kConnecting;
  int64_t window_ms_ = 0;  // start of the second in which requests are counted
  uint64_t window_requests_ = 0;
  uint64_t window_replayed_ = 0;
  const stream::Source* source_ = nullptr;
};

}  // namespace kvcast::sim
