// Follower: the subscriber's side of one publisher: the real decoder, source machine, index and
// snapshot join, with the guarantees checked at every call.
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
#include "src/stream_sim/violation.h"

namespace kvcast::sim {

class Follower final : public ReplicaSink {
 public:
  // `publisher` is looked at by the checks only. All must outlive it.
  Follower(WorkerId worker, const stream::SourceLimits& limits, bool can_replay,
           const SimPublisher& publisher, PrefixIndex& index, Record& record);

  // Once, before any check.
  void Watch(const stream::Source& source) { source_ = &source; }
  SourceStatus status(int64_t now_ms) const { return source_->status(now_ms); }

  // After every call into the source.
  void Check(int64_t now_ms);
  // What must hold if nothing has gone wrong for `kDetectionMs`.
  void CheckDetected(int64_t now_ms, int life, uint64_t next_seq);
  // The source is given something of the publisher, or a connection to it.
  void NoteHeard(int64_t now_ms) { heard_ms_ = now_ms; }
  void NoteConnected() { silent_since_connect_ = true; }
  void NoteLive() { silent_since_connect_ = false; }
  // A live batch of this number was given to the source: it is applied, held or known to be
  // missing.
  void CheckTaken(int64_t now_ms, uint64_t seq);
  // Timers have run: who heard nothing for long does not say synced.
  void CheckSilence(int64_t now_ms);
  // All that is held, entry by entry; if by its digest nothing has changed, only now and then.
  void CheckContent(int64_t now_ms, bool always = false);
  // Nothing has gone wrong for long: everything is as the publisher says. Without replay what was
  // lost stays lost, and the end of it is never known; of a publisher that said nothing since the
  // connection came back nothing is known at all.
  void CheckConverged(int64_t now_ms);

  // Changes what is held behind the source's back.
  void Damage(Random& random, int64_t entries);
  bool can_replay() const { return can_replay_; }
  void CountReached(int64_t now_ms) const;

 private:
  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override;
  void Reset(ResetReason reason) override;
  bool TakesSnapshots() const override { return true; }
  void BeginSnapshot() override;
  bool AddToSnapshot(std::span<const uint8_t> payload) override;
  bool CommitSnapshot(const PublisherStatus& status) override;
  void DropSnapshot() override { replica_.DropSnapshot(); }
  DigestVerdict Compare(const PublisherStatus& status) override;
  bool Repairs() const override { return true; }
  uint64_t DifferingBuckets(const PublisherStatus& status) override;
  void BeginRepair(uint64_t buckets) override;
  void CheckOrder(double ts, uint64_t seq);
  void Fail(const std::string& guarantee, const std::string& what) const;

  const WorkerId worker_;
  const stream::SourceLimits limits_;
  const bool can_replay_;
  const SimPublisher& publisher_;
  PrefixIndex& index_;
  Record& record_;
  router::Replica replica_;
  EventBatch batch_;
  // Whose state is held: nullopt: nobody's, nothing was applied since it was reset.
  std::optional<int> life_;
  uint64_t next_ = 0;  // of the life
  int64_t heard_ms_ = 0;
  bool silent_since_connect_ = true;
  bool repairs_ = false;  // what is being filled is a repair, not a snapshot
  bool damaged_ = false;
  bool was_damaged_ = false;  // ever; remembered digests outlive the damage
  HoldingsSum visible_;       // after the last check
  HoldingsSum compared_;      // when the content was last compared
  int unchanged_ = 0;         // looks at the content since then
  SourceState last_state_ = SourceState::kConnecting;
  int64_t window_ms_ = 0;  // one second in which requests are counted
  uint64_t window_requests_ = 0;
  uint64_t window_replayed_ = 0;
  const stream::Source* source_ = nullptr;
};

}  // namespace kvcast::sim
